#include <cmath>
#include <limits>

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include "core/base/error.h"
#include "tests/core/ops/support.h"

namespace shale {
namespace {

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto steps = q.size(1), share = q.size(2) / k.size(2);
  const auto by_head = [](const at::Tensor& x, std::int64_t times) {
    return x.repeat_interleave(times, 2).transpose(1, 2);
  };
  const auto scores = at::matmul(by_head(q, 1), by_head(k, share).transpose(-1, -2)) / std::sqrt(double(q.size(3)));
  const auto later = at::ones({steps, steps}, at::kBool).triu(1);
  const auto weights = scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(weights, by_head(v, share)).transpose(1, 2).reshape({q.size(0), steps, -1});
}

struct Shape {
  std::int64_t batch, steps, heads, kv_heads, dim;
};

Case attention_case(const Shape& s) {
  return {{random({s.batch, s.steps, s.heads, s.dim}, 1), random({s.batch, s.steps, s.kv_heads, s.dim}, 2),
           random({s.batch, s.steps, s.kv_heads, s.dim}, 3)},
          {},
          [](const Tensors& x, std::vector<Weight*>) { return attention(x[0], x[1], x[2]); },
          [](const Tensors& x, const Tensors&) { return plain_attention(x[0], x[1], x[2]); }};
}

TEST(attention, agrees_with_aten) {
  compare(attention_case({2, 7, 4, 4, 8}));
  compare(attention_case({2, 7, 4, 2, 8}));
  compare(attention_case({1, 97, 6, 1, 16}));
}

TEST(attention, one_step_returns_the_value) {
  compare(attention_case({2, 1, 4, 2, 6}), at::kDouble, at::kDouble);
  const auto v = random({2, 1, 2, 6}, 1);
  EXPECT_NEAR_TENSOR(attention(random({2, 1, 2, 6}, 2), random({2, 1, 2, 6}, 3), v), v.reshape({2, 1, 12}), 1e-15);
}

TEST(attention, agrees_with_differences) { check_by_differences(attention_case({2, 5, 4, 2, 4})); }

TEST(attention, takes_inputs_that_are_not_contiguous) {
  const auto wide = random({2, 5, 8, 6}, 1).to(at::kFloat);
  const auto q = wide.narrow(2, 0, 4), k = wide.narrow(2, 4, 2), v = wide.narrow(2, 6, 2);
  EXPECT_NEAR_TENSOR(attention(q, k, v), plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble)),
                     1e-6);
}

TEST(attention, sees_no_later_step) {
  auto c = attention_case({1, 6, 2, 2, 4});
  const auto first = c.ours(c.inputs, {}).clone();
  for (auto& x : c.inputs) x.narrow(1, 4, 2).fill_(7);
  const auto second = c.ours(c.inputs, {});
  EXPECT_TRUE(first.narrow(1, 0, 4).equal(second.narrow(1, 0, 4)));
}

TEST(attention, refuses_what_does_not_fit) {
  EXPECT_THROW(attention(random({1, 3, 4, 8}, 1), random({1, 3, 3, 8}, 1), random({1, 3, 3, 8}, 1)), Error);
  EXPECT_THROW(attention(random({1, 3, 4, 8}, 1), random({1, 2, 2, 8}, 1), random({1, 2, 2, 8}, 1)), Error);
  EXPECT_THROW(attention(random({1, 3, 4, 8}, 1), random({1, 3, 2, 8}, 1), random({1, 3, 4, 8}, 1)), Error);
}

}  // namespace
}  // namespace shale

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/silu.h>

#include "core/base/error.h"
#include "tests/core/ops/support.h"

namespace shale {
namespace {

at::Tensor table(std::int64_t steps, std::int64_t dim) {
  const auto frequency = at::arange(dim / 2, at::kDouble).mul(-0.3).exp();
  const auto angle = at::outer(at::arange(steps, at::kDouble), frequency);
  return at::cat({angle.cos(), angle.sin()}, -1);
}

at::Tensor plain_rope(const at::Tensor& x, const at::Tensor& cs) {
  const auto half = x.size(-1) / 2;
  const auto c = cs.narrow(-1, 0, half).unsqueeze(1), s = cs.narrow(-1, half, half).unsqueeze(1);
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, -1);
}

Case rope_case(at::IntArrayRef shape) {
  const auto cs = table(shape[1], shape[3]);
  return {{random(shape, 1)},
          {},
          [cs](const Tensors& x, std::vector<Weight*>) { return rope(x[0], cs); },
          [cs](const Tensors& x, const Tensors&) { return plain_rope(x[0], cs); }};
}

Case swiglu_case(at::IntArrayRef shape) {
  return {{random(shape, 1) * 3, random(shape, 2)},
          {},
          [](const Tensors& x, std::vector<Weight*>) { return swiglu(x[0], x[1]); },
          [](const Tensors& x, const Tensors&) { return at::silu(x[0]) * x[1]; }};
}

TEST(rope, agrees_with_aten) {
  compare(rope_case({2, 7, 3, 8}));
  compare(rope_case({1, 1, 1, 2}));
  compare(rope_case({3, 5, 2, 18}));
  compare(rope_case({2, 33, 4, 64}));
}

TEST(rope, agrees_with_differences) { check_by_differences(rope_case({2, 3, 2, 6})); }

TEST(rope, leaves_its_input_alone_and_takes_both_tables) {
  const auto x = random({2, 5, 3, 8}, 1).to(at::kFloat), before = x.clone(), cs = table(5, 8);
  const auto y = rope(x, cs), z = rope(x, cs.to(at::kFloat));
  EXPECT_TRUE(x.equal(before));
  EXPECT_TRUE(y.equal(z));
}

TEST(rope, takes_inputs_that_are_not_contiguous) {
  const auto x = random({2, 3, 5, 8}, 1).to(at::kFloat).transpose(1, 2);
  EXPECT_NEAR_TENSOR(rope(x, table(5, 8)), plain_rope(x.to(at::kDouble), table(5, 8)), 1e-6);
}

TEST(rope, gradient_that_is_not_contiguous) {
  const auto x = random({2, 5, 3, 8}, 1).to(at::kFloat).set_requires_grad(true);
  const auto dy = random({2, 3, 5, 8}, 2).to(at::kFloat).transpose(1, 2);
  torch::autograd::backward({rope(x, table(5, 8))}, {dy});
  const auto z = x.detach().to(at::kDouble).set_requires_grad(true);
  torch::autograd::backward({plain_rope(z, table(5, 8))}, {dy.to(at::kDouble)});
  EXPECT_NEAR_TENSOR(x.grad(), z.grad(), 1e-6);
}

TEST(rope, refuses_what_does_not_fit) {
  EXPECT_THROW(rope(random({2, 5, 3, 8}, 1), table(4, 8)), Error);
  EXPECT_THROW(rope(random({2, 5, 3, 8}, 1), table(5, 6)), Error);
  EXPECT_THROW(rope(random({2, 5, 3, 7}, 1), table(5, 7)), Error);
}

TEST(swiglu, agrees_with_aten) {
  for (const std::int64_t n : {1, 7, 8, 97, 1000}) {
    SCOPED_TRACE(n);
    compare(swiglu_case({2, 3, n}));
  }
}

TEST(swiglu, agrees_with_differences) { check_by_differences(swiglu_case({2, 3, 7})); }

TEST(swiglu, extreme_gates) {
  const auto gate = at::arange(-200, 201, at::kFloat), up = at::zeros_like(gate).fill_(1);
  const auto wide = gate.to(at::kDouble);
  EXPECT_NEAR_TENSOR(swiglu(gate, up), at::silu(wide), 1e-6);
}

TEST(swiglu, not_a_number_stays_so) {
  const auto gate = at::zeros({9}, at::kFloat).fill_(std::nanf("")), up = at::zeros_like(gate).fill_(1);
  EXPECT_TRUE(swiglu(gate, up).isnan().all().item<bool>());
}

TEST(swiglu, takes_inputs_that_are_not_contiguous) {
  const auto both = random({5, 14}, 1).to(at::kFloat);
  const auto gate = both.narrow(1, 0, 7), up = both.narrow(1, 7, 7);
  EXPECT_NEAR_TENSOR(swiglu(gate, up), at::silu(gate.to(at::kDouble)) * up, 1e-6);
}

TEST(swiglu, one_input_alone_wants_a_gradient) {
  const auto gate = random({5}, 1), up = random({5}, 2).set_requires_grad(true);
  torch::autograd::backward({swiglu(gate, up).sum()}, {});
  EXPECT_NEAR_TENSOR(up.grad(), at::silu(gate), 1e-14);
}

TEST(swiglu, refuses_what_does_not_fit) { EXPECT_THROW(swiglu(random({5}, 1), random({6}, 1)), Error); }

}  // namespace
}  // namespace shale

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include "core/base/error.h"
#include "tests/core/ops/support.h"

namespace shale {
namespace {

Case linear_case(at::IntArrayRef shape, std::int64_t out) {
  return {{random(shape, 1)},
          {random({out, shape.back()}, 2)},
          [](const Tensors& x, std::vector<Weight*> w) { return linear(x[0], *w[0]); },
          [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0]); }};
}

Case bias_case() {
  return {{random({3, 7, 5}, 1)},
          {random({11, 5}, 2), random({11}, 3)},
          [](const Tensors& x, std::vector<Weight*> w) { return linear(x[0], *w[0], w[1]); },
          [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0], w[1]); }};
}

at::Tensor some_ids() { return at::tensor({3, 0, 3, 3, 6, 1, 0, 3}, at::kLong).view({2, 4}); }

Case embedding_case() {
  return {{},
          {random({7, 97}, 2)},
          [](const Tensors&, std::vector<Weight*> w) { return embedding(some_ids(), *w[0]); },
          [](const Tensors&, const Tensors& w) { return at::embedding(w[0], some_ids()); }};
}

TEST(linear, agrees_with_aten) {
  compare(linear_case({2, 7, 97}, 33));
  compare(linear_case({1, 1}, 1));
  compare(linear_case({97}, 7));
  compare(bias_case());
}

TEST(linear, agrees_with_differences) {
  check_by_differences(linear_case({2, 3, 7}, 5));
  check_by_differences(bias_case());
}

TEST(linear, takes_inputs_that_are_not_contiguous) {
  auto c = linear_case({4, 5, 6}, 7);
  const auto ours = c.ours;
  const auto plain = c.plain;
  c.ours = [ours](const Tensors& x, std::vector<Weight*> w) { return ours({x[0].transpose(0, 1)}, w).transpose(0, 1); };
  c.plain = [plain](const Tensors& x, const Tensors& w) { return plain({x[0].transpose(0, 1)}, w).transpose(0, 1); };
  compare(c);
}

TEST(linear, frozen_weight_passes_the_gradient_on) {
  Parameter w(random({3, 4}, 1), at::kDouble, true);
  const auto x = random({2, 4}, 2).set_requires_grad(true);
  const auto dy = random({2, 3}, 3);
  torch::autograd::backward({linear(x, w.weight)}, {dy});
  EXPECT_NEAR_TENSOR(x.grad(), dy.mm(w.weight.value), 1e-14);
  EXPECT_TRUE(w.fresh);
  EXPECT_FALSE(linear(random({2, 4}, 2), w.weight).requires_grad());
}

TEST(linear, first_unit_has_no_input_gradient) {
  Parameter w(random({3, 4}, 1), at::kDouble);
  const auto x = random({2, 4}, 2), dy = random({2, 3}, 3);
  const auto y = linear(x, w.weight);
  ASSERT_TRUE(y.requires_grad());
  torch::autograd::backward({y}, {dy});
  EXPECT_NEAR_TENSOR(w.weight.grad, dy.t().mm(x), 1e-14);
}

TEST(linear, makes_no_graph_without_grad_mode) {
  Parameter w(random({3, 4}, 1), at::kDouble);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear(random({2, 4}, 2).set_requires_grad(true), w.weight).requires_grad());
}

TEST(linear, refuses_what_does_not_fit) {
  Parameter w(random({3, 4}, 1), at::kDouble);
  EXPECT_THROW(linear(random({2, 5}, 2), w.weight), Error);
}

TEST(linear, gradient_memory_that_is_missing_is_a_bug) {
  Parameter w(random({3, 4}, 1), at::kDouble);
  w.weight.grad = at::Tensor();
  const auto y = linear(random({2, 4}, 2), w.weight);
  EXPECT_ANY_THROW(torch::autograd::backward({y}, {random({2, 3}, 3)}));
}

// The product is exact in float32 and rounded once.
TEST(linear, bfloat16_rounds_once) {
  const auto x = random({9, 256}, 1).to(at::kBFloat16), w = random({5, 256}, 2).to(at::kBFloat16);
  Parameter p(w, at::kFloat, true);
  const auto exact = x.to(at::kDouble).mm(w.to(at::kDouble).t());
  const auto error = (linear(x, p.weight).to(at::kDouble) - exact).abs();
  EXPECT_LE((error - exact.abs() / 256).max().item<double>(), 1e-4);
}

TEST(embedding, agrees_with_aten) { compare(embedding_case()); }
TEST(embedding, agrees_with_differences) { check_by_differences(embedding_case()); }

TEST(embedding, tied_with_a_linear_adds_into_one_gradient) {
  const auto type = at::kFloat;
  Parameter shared(random({7, 5}, 1).to(type), type);
  Weight head = shared.weight;  // another use: its own leaf, the same memory
  head.value = shared.weight.value.detach().clone().set_requires_grad(true);
  const auto x = embedding(some_ids(), shared.weight);
  torch::autograd::backward({linear(x, head).sum()}, {});

  const auto w = random({7, 5}, 1).to(type).set_requires_grad(true);
  torch::autograd::backward({at::linear(at::embedding(w, some_ids()), w).sum()}, {});
  EXPECT_NEAR_TENSOR(shared.weight.grad, w.grad(), 1e-6);
}

TEST(embedding, repeated_tokens_round_once_in_bfloat16) {
  Parameter w(at::zeros({2, 3}, at::kBFloat16), at::kBFloat16);
  const auto ids = at::zeros({1, 1000}, at::kLong);
  const auto y = embedding(ids, w.weight);
  torch::autograd::backward({y}, {at::zeros_like(y).fill_(1)});
  EXPECT_EQ(w.weight.grad[0][0].item<double>(), 1000.0);  // adding in bfloat16 would stop at 256
  EXPECT_EQ(w.weight.grad[1][0].item<double>(), 0.0);
}

TEST(embedding, frozen_and_no_grad_make_no_graph) {
  Parameter frozen(random({7, 5}, 1), at::kDouble, true), trained(random({7, 5}, 1), at::kDouble);
  EXPECT_FALSE(embedding(some_ids(), frozen.weight).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(embedding(some_ids(), trained.weight).requires_grad());
}

TEST(embedding, names_a_token_outside_the_vocabulary) {
  Parameter w(random({6, 5}, 1), at::kDouble);
  for (const std::int64_t bad : {6, -1}) {
    auto ids = some_ids().clamp_max(5);
    ids[1][2] = bad;
    try {
      embedding(ids, w.weight);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::input);
      EXPECT_NE(std::string(e.what()).find(str("token ", bad, " at position 6")), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace shale

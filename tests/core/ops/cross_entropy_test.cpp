#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>

#include "core/base/error.h"
#include "tests/core/ops/support.h"

namespace shale {
namespace {

at::Tensor some_targets(std::int64_t rows, std::int64_t vocabulary) {
  auto targets = at::arange(rows, at::kLong).mul(7).remainder(vocabulary);
  if (rows > 2) targets[1] = kIgnored;
  return targets;
}

Case loss_case(std::int64_t rows, std::int64_t vocabulary) {
  const auto targets = some_targets(rows, vocabulary);
  return {{random({rows, vocabulary}, 1) * 3},
          {},
          [targets](const Tensors& x, std::vector<Weight*>) { return cross_entropy_sum(x[0], targets); },
          [targets](const Tensors& x, const Tensors&) {
            return at::cross_entropy_loss(x[0], targets, {}, at::Reduction::Sum, kIgnored);
          }};
}

TEST(cross_entropy_sum, agrees_with_aten) {
  compare(loss_case(1, 2));
  compare(loss_case(7, 97));
  compare(loss_case(40, 8));
  compare(loss_case(5, 3001));
}

TEST(cross_entropy_sum, agrees_with_differences) { check_by_differences(loss_case(5, 7)); }

TEST(cross_entropy_sum, one_word_loses_nothing) {
  const auto x = random({3, 1}, 1).to(at::kFloat).set_requires_grad(true);
  const auto loss = cross_entropy_sum(x, at::zeros({3}, at::kLong));
  EXPECT_EQ(loss.item<float>(), 0.0f);
  torch::autograd::backward({loss}, {});
  EXPECT_LE(x.grad().abs().max().item<float>(), 1e-6f);
}

TEST(cross_entropy_sum, result_is_float32_or_wider) {
  const auto targets = some_targets(4, 5);
  const auto type = [&](at::ScalarType t) { return cross_entropy_sum(random({4, 5}, 1).to(t), targets).scalar_type(); };
  EXPECT_EQ(type(at::kBFloat16), at::kFloat);
  EXPECT_EQ(type(at::kFloat), at::kFloat);
  EXPECT_EQ(type(at::kDouble), at::kDouble);
}

TEST(cross_entropy_sum, all_targets_ignored) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto x = random({4, 5}, 1).to(type).set_requires_grad(true);
    const auto loss = cross_entropy_sum(x, at::full({4}, kIgnored, at::kLong));
    EXPECT_EQ(loss.item<double>(), 0.0);
    torch::autograd::backward({loss}, {});
    EXPECT_EQ(x.grad().abs().max().item<double>(), 0.0);
  }
}

TEST(cross_entropy_sum, large_logits_do_not_overflow) {
  const auto x = (random({4, 50}, 1) * 1000).to(at::kFloat).set_requires_grad(true);
  const auto z = x.detach().to(at::kDouble).set_requires_grad(true);
  const auto targets = some_targets(4, 50);
  const auto loss = cross_entropy_sum(x, targets);
  const auto plain = at::cross_entropy_loss(z, targets, {}, at::Reduction::Sum);
  torch::autograd::backward({plain}, {});
  EXPECT_NEAR_TENSOR(loss, plain, 1e-6);
  torch::autograd::backward({loss}, {});
  EXPECT_NEAR_TENSOR(x.grad(), z.grad(), 1e-5);
}

TEST(cross_entropy_sum, not_a_number_reaches_the_loss) {
  auto x = random({4, 50}, 1).to(at::kFloat);
  x[2][49] = std::nanf("");
  EXPECT_TRUE(std::isnan(cross_entropy_sum(x, some_targets(4, 50)).item<float>()));
  x[2][49] = HUGE_VALF;
  EXPECT_FALSE(std::isfinite(cross_entropy_sum(x, some_targets(4, 50)).item<float>()));
}

TEST(cross_entropy_sum, takes_logits_that_are_not_contiguous) {
  const auto base = random({9, 6}, 1).to(at::kFloat), targets = some_targets(6, 9);
  const auto plain = at::cross_entropy_loss(base.t().to(at::kDouble), targets, {}, at::Reduction::Sum);
  const auto before = base.clone();
  EXPECT_NEAR_TENSOR(cross_entropy_sum(base.t(), targets), plain, 1e-6);
  EXPECT_TRUE(base.equal(before));
}

TEST(cross_entropy_sum, makes_no_graph_without_grad_mode) {
  const at::NoGradGuard no_grad;
  const auto x = random({4, 5}, 1).set_requires_grad(true);
  EXPECT_FALSE(cross_entropy_sum(x, some_targets(4, 5)).requires_grad());
}

TEST(cross_entropy_sum, names_a_target_outside_the_vocabulary) {
  for (const std::int64_t bad : {5, -1}) {
    auto targets = some_targets(4, 5);
    targets[3] = bad;
    try {
      cross_entropy_sum(random({4, 5}, 1), targets);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::input);
      EXPECT_NE(std::string(e.what()).find(str("target ", bad, " at position 3")), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(cross_entropy_sum(random({4, 5}, 1), some_targets(3, 5)), Error);
}

}  // namespace
}  // namespace shale

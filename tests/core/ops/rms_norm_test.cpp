#include <ATen/Parallel.h>
#include <ATen/ops/rms_norm.h>

#include "core/base/error.h"
#include "tests/core/ops/support.h"

namespace shale {
namespace {

constexpr double kEps = 1e-5;

Case norm_case(at::IntArrayRef shape) {
  return {{random(shape, 1)},
          {random({shape.back()}, 2)},
          [](const Tensors& x, std::vector<Weight*> w) { return rms_norm(x[0], *w[0], kEps); },
          [](const Tensors& x, const Tensors& w) { return at::rms_norm(x[0], {x[0].size(-1)}, w[0], kEps); }};
}

TEST(rms_norm, agrees_with_aten) {
  for (const std::int64_t dim : {2, 7, 8, 32, 97, 256}) {
    SCOPED_TRACE(dim);
    compare(norm_case({2, 3, dim}));
  }
  compare(norm_case({130, 33}));  // more rows than one block of the weight's sum
  compare(norm_case({97}));
}

TEST(rms_norm, agrees_with_differences) { check_by_differences(norm_case({2, 3, 7})); }

TEST(rms_norm, takes_inputs_that_are_not_contiguous) {
  auto c = norm_case({4, 5, 6});
  const auto ours = c.ours;
  const auto plain = c.plain;
  c.ours = [ours](const Tensors& x, std::vector<Weight*> w) { return ours({x[0].transpose(0, 1)}, w).transpose(0, 1); };
  c.plain = [plain](const Tensors& x, const Tensors& w) { return plain({x[0].transpose(0, 1)}, w).transpose(0, 1); };
  compare(c);
}

TEST(rms_norm, eps_counts_for_small_rows) {
  Parameter w(at::zeros({4}, at::kFloat).fill_(1), at::kFloat);
  const auto y = rms_norm(at::zeros({2, 4}, at::kFloat).fill_(1e-4), w.weight, 1e-2);
  EXPECT_NEAR(y[0][0].item<float>(), 1e-3, 1e-7);
}

TEST(rms_norm, frozen_first_unit_and_no_grad) {
  Parameter frozen(random({4}, 1), at::kDouble, true), trained(random({4}, 1), at::kDouble);
  EXPECT_FALSE(rms_norm(random({2, 4}, 2), frozen.weight, kEps).requires_grad());
  const auto x = random({2, 4}, 2).set_requires_grad(true);
  torch::autograd::backward({rms_norm(x, frozen.weight, kEps).sum()}, {});
  EXPECT_TRUE(x.grad().defined());
  torch::autograd::backward({rms_norm(random({2, 4}, 2), trained.weight, kEps).sum()}, {});
  EXPECT_FALSE(trained.fresh);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(rms_norm(x, trained.weight, kEps).requires_grad());
}

TEST(rms_norm, bits_do_not_depend_on_the_number_of_threads) {
  const auto results = [](int threads) {
    at::set_num_threads(threads);
    Parameter w(random({333}, 1).to(at::kFloat), at::kFloat);
    const auto x = random({517, 333}, 2).to(at::kFloat).set_requires_grad(true);
    const auto y = rms_norm(x, w.weight, kEps);
    torch::autograd::backward({y}, {random({517, 333}, 3).to(at::kFloat)});
    return Tensors{y.detach(), x.grad(), w.weight.grad};
  };
  const auto one = results(1), three = results(3);
  at::set_num_threads(1);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

TEST(rms_norm, refuses_what_does_not_fit) {
  Parameter w(random({3}, 1), at::kDouble);
  EXPECT_THROW(rms_norm(random({2, 5}, 2), w.weight, kEps), Error);
}

}  // namespace
}  // namespace shale

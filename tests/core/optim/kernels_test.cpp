// Both builds of the kernels against float64 arithmetic, at every length that a vector loop treats differently.
#include "core/optim/kernels.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/text.h"

namespace shale {
namespace {

constexpr AdamWNumbers kNumbers{
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step_size = 0.02, .decay = 0.999, .root = 1.5, .grad_scale = 0.7};

std::vector<const OptimKernels*> both() {
  std::vector<const OptimKernels*> out{&optim_base_kernels()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out.push_back(&optim_v3_kernels());
  return out;
}

template <class T>
struct Arrays {
  explicit Arrays(std::int64_t n) : master(n + 1), grad(n + 1), exp_avg(n + 1), exp_avg_sq(n + 1), n(n) {
    for (std::int64_t i = 0; i <= n; ++i) {
      const double x = static_cast<double>(i);
      master[i] = static_cast<T>(std::sin(1.7 * x)), grad[i] = static_cast<T>(0.1 * std::sin(2.3 * x + 1));
      exp_avg[i] = static_cast<T>(0.1 * std::sin(3.1 * x)),
      exp_avg_sq[i] = static_cast<T>(1e-3 + 1e-2 * std::pow(std::sin(x), 2));
    }
  }
  // From element 1: not aligned to a vector.
  AdamWArrays<T> arrays() { return {master.data() + 1, grad.data() + 1, exp_avg.data() + 1, exp_avg_sq.data() + 1, n}; }
  std::vector<T> master, grad, exp_avg, exp_avg_sq;
  std::int64_t n;
};

template <class T>
void expect_formula(void (*kernel)(const AdamWArrays<T>&, const AdamWNumbers&), std::int64_t n, double tolerance) {
  Arrays<T> a(n);
  const auto before = a;
  kernel(a.arrays(), kNumbers);
  EXPECT_EQ(a.master[0], before.master[0]) << "wrote before the arrays";
  const auto& h = kNumbers;
  for (std::int64_t i = 1; i <= n; ++i) {
    const double g = static_cast<double>(before.grad[i]) * h.grad_scale;
    const double m = h.beta1 * before.exp_avg[i] + (1 - h.beta1) * g;
    const double v = h.beta2 * before.exp_avg_sq[i] + (1 - h.beta2) * g * g;
    const double p = before.master[i] * h.decay - h.step_size * m / (std::sqrt(v) * h.root + h.eps);
    ASSERT_NEAR(a.master[i], p, tolerance) << "element " << i;
    ASSERT_NEAR(a.exp_avg[i], m, tolerance * 0.1) << "element " << i;
    ASSERT_NEAR(a.exp_avg_sq[i], v, tolerance * 0.01) << "element " << i;
  }
}

// A few roundings of numbers near 1: 2^-24 and 2^-53 each.
TEST(OptimKernels, AdamWEqualsTheFormula) {
  for (auto* k : both())
    for (std::int64_t n : {1, 3, 4, 7, 8, 9, 15, 16, 31, 1000, 4099}) {
      SCOPED_TRACE(shale::str(k == &optim_base_kernels() ? "base, " : "v3, ", n));
      expect_formula<float>(k->adamw_f32, n, 4 * 0x1p-24);
      expect_formula<double>(k->adamw_f64, n, 4 * 0x1p-53);
    }
}

TEST(OptimKernels, NothingHappensToNothing) {
  for (auto* k : both()) {
    k->adamw_f32({nullptr, nullptr, nullptr, nullptr, 0}, kNumbers);
    k->adamw_f64({nullptr, nullptr, nullptr, nullptr, 0}, kNumbers);
    EXPECT_EQ(k->squares_f32(nullptr, 0), 0);
    EXPECT_EQ(k->squares_f64(nullptr, 0), 0);
  }
}

TEST(OptimKernels, AZeroGradientOfAFreshParameterOnlyDecays) {
  for (auto* k : both()) {
    Arrays<float> a(33);
    std::fill(a.grad.begin(), a.grad.end(), 0.0f);
    std::fill(a.exp_avg.begin(), a.exp_avg.end(), 0.0f), std::fill(a.exp_avg_sq.begin(), a.exp_avg_sq.end(), 0.0f);
    const auto before = a;
    k->adamw_f32(a.arrays(), kNumbers);
    for (int i = 1; i <= 33; ++i) EXPECT_EQ(a.master[i], before.master[i] * 0.999f) << i;
  }
}

// Numbers of very different sizes, as a gradient has them.
template <class T>
void expect_exact_sum(double (*kernel)(const T*, std::int64_t), std::int64_t n) {
  std::vector<T> x(static_cast<std::size_t>(n));
  long double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<T>(std::sin(1.7 * static_cast<double>(i)) * std::pow(10.0, static_cast<double>(i % 7) - 5));
    sum += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
  }
  EXPECT_NEAR(kernel(x.data(), n), static_cast<double>(sum), 1e-12 * static_cast<double>(sum)) << n;
}

TEST(OptimKernels, SquaresAreAddedUpInFloat64) {
  for (auto* k : both())
    for (std::int64_t n : {1, 7, 8, 9, 1023, 1024, 1025, 2'500'003}) {
      expect_exact_sum<float>(k->squares_f32, n);
      expect_exact_sum<double>(k->squares_f64, n);
    }
}

TEST(OptimKernels, SquaresOfWhatIsNotFiniteAreNotFinite) {
  for (auto* k : both())
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      for (int at : {0, 100, 1029}) {
        std::vector<float> x(1030, 1.0f);
        x[at] = bad;
        EXPECT_FALSE(std::isfinite(k->squares_f32(x.data(), 1030)));
      }
  // Large float32 gradients have a square that float32 cannot hold.
  const std::vector<float> large(10, 1e30f);
  EXPECT_NEAR(optim_base_kernels().squares_f32(large.data(), 10), 1e61, 1e54);
}

}  // namespace
}  // namespace shale

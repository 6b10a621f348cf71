// Every instruction set against float64, on sizes around the vector length, and split anywhere.
#include "core/ops/kernels.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace shale {
namespace {

using Floats = std::vector<float>;

Floats noise(std::int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  Floats x(n);
  for (auto& v : x) v = scale * (static_cast<float>(random()) / 2147483648.0f - 1);
  return x;
}

class kernels_of : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()) GTEST_SKIP() << "this machine lacks the instructions";
  }
  const Kernels& k() const { return *GetParam(); }
};

TEST_P(kernels_of, exponential_is_good_to_2e_7) {
  Floats x;
  for (float v = -87; v < 88; v += 0.0137f) x.push_back(v);
  Floats y(x.size());
  k().exponential(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - exact) / exact);
  }
  EXPECT_LE(worst, 2.5e-7);
}

TEST_P(kernels_of, exponential_at_the_ends) {
  const Floats x{-HUGE_VALF, -1000, 1000, HUGE_VALF, std::nanf(""), 0};
  Floats y(x.size());
  k().exponential(x.data(), y.data(), 6);
  EXPECT_LE(y[0], 2e-38f);
  EXPECT_LE(y[1], 2e-38f);
  EXPECT_GE(y[2], 1e38f);
  EXPECT_GE(y[3], 1e38f);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1.0f);
}

TEST_P(kernels_of, rms_forward) {
  for (const std::int64_t dim : {1, 7, 8, 9, 97, 1025, 3000}) {
    const auto x = noise(2 * dim, 1), w = noise(dim, 2);
    Floats y(2 * dim), r(2);
    k().rms_forward({x.data(), w.data(), y.data(), r.data(), dim, 1e-5f}, 0, 2);
    for (int i = 0; i < 2; ++i) {
      double squares = 0;
      for (std::int64_t j = 0; j < dim; ++j) squares += double(x[i * dim + j]) * x[i * dim + j];
      const double exact = 1 / std::sqrt(squares / dim + 1e-5);
      EXPECT_NEAR(r[i], exact, 2e-7 * exact) << dim;
      const auto last = i * dim + dim - 1;
      EXPECT_NEAR(y[last], x[last] * exact * w[dim - 1], 3e-7 * exact);
    }
  }
}

TEST_P(kernels_of, softmax_of_odd_sizes) {
  for (const std::int64_t n : {1, 7, 8, 97, 1025, 5000}) {
    auto x = noise(n, 3, 20);
    const auto original = x;
    float max = 0, sum = 0;
    k().softmax_statistics({x.data(), &max, &sum, n}, 0, 1);
    double exact = 0;
    for (const auto v : x) exact += std::exp(double(v) - max);
    EXPECT_EQ(max, *std::max_element(x.begin(), x.end()));
    EXPECT_NEAR(sum, exact, 4e-7 * exact) << n;
    const std::int64_t target = n / 2;
    k().softmax_backward({x.data(), &max, &sum, &target, n, 0.5f}, 0, 1);
    for (std::int64_t j = 0; j < n; ++j)
      EXPECT_NEAR(x[j], 0.5 * (std::exp(double(original[j]) - max) / exact - (j == target)), 4e-7);
  }
}

TEST_P(kernels_of, rows_are_added_in_order) {
  const std::int64_t ids[] = {1, 0, 1, 1};
  const auto dy = noise(4 * 13, 4);
  Floats sum(2 * 13, 1.0f);
  k().add_rows({ids, dy.data(), sum.data(), 4, 13}, 0, 13);
  for (int j = 0; j < 13; ++j) {
    EXPECT_EQ(sum[j], 1.0f + dy[13 + j]);
    EXPECT_EQ(sum[13 + j], ((1.0f + dy[j]) + dy[26 + j]) + dy[39 + j]);
  }
}

// Splitting the range anywhere must not change a bit, whatever the threads.
TEST_P(kernels_of, split_ranges_give_the_same_bits) {
  const std::int64_t rows = 130, dim = 77, n = rows * dim;
  const auto x = noise(n, 5, 3), dy = noise(n, 6), r = noise(rows, 7), start = noise(dim, 8);
  const auto split = [](std::int64_t end, std::vector<std::int64_t> cuts, const auto& work) {
    std::int64_t begin = 0;
    cuts.push_back(end);
    for (const auto cut : cuts) work(begin, cut), begin = cut;
  };
  const auto dw = [&](std::vector<std::int64_t> cuts) {
    auto sum = start;
    split(dim, cuts, [&](auto b, auto e) {
      k().rms_weight_gradient({x.data(), r.data(), dy.data(), sum.data(), rows, dim, true}, b, e);
    });
    return sum;
  };
  EXPECT_EQ(dw({}), dw({1, 9, 40, 41, 76}));
  const auto silu = [&](std::vector<std::int64_t> cuts) {
    Floats y(n);
    split(n, cuts, [&](auto b, auto e) { k().swiglu_forward({x.data(), dy.data(), y.data()}, b, e); });
    return y;
  };
  EXPECT_EQ(silu({}), silu({3, 500, 501, 5003}));
  const auto added = [&](std::vector<std::int64_t> cuts) {
    const std::vector<std::int64_t> ids(rows, 0);
    auto sum = start;
    split(dim, cuts, [&](auto b, auto e) { k().add_rows({ids.data(), dy.data(), sum.data(), rows, dim}, b, e); });
    return sum;
  };
  EXPECT_EQ(added({}), added({5, 30, 71}));
}

TEST_P(kernels_of, nothing_outside_the_range_is_written) {
  const std::int64_t dim = 13;
  const auto x = noise(5 * dim, 1), w = noise(dim, 2);
  Floats y(5 * dim, -7.0f), r(5, -7.0f);
  k().rms_forward({x.data(), w.data(), y.data(), r.data(), dim, 1e-5f}, 1, 4);
  for (std::int64_t j = 0; j < dim; ++j) {
    EXPECT_EQ(y[j], -7.0f);
    EXPECT_EQ(y[4 * dim + j], -7.0f);
  }
  EXPECT_EQ(r[0], -7.0f);
  EXPECT_EQ(r[4], -7.0f);
  Floats z(10, -7.0f);
  k().swiglu_forward({x.data(), w.data(), z.data()}, 2, 5);
  EXPECT_EQ(z[1], -7.0f);
  EXPECT_EQ(z[5], -7.0f);
}

INSTANTIATE_TEST_SUITE_P(every, kernels_of, testing::Values(&base_kernels(), avx2_kernels()),
                         [](const auto& info) { return info.param ? info.param->name : "absent"; });

TEST(kernels, the_choice_is_one_of_the_sets) {
  EXPECT_EQ(&kernels(), avx2_kernels() ? avx2_kernels() : &base_kernels());
}

}  // namespace
}  // namespace shale

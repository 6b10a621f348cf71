#include <cmath>
#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "core/model/model.h"
#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

const ParameterInfo kMatrix{"model.layers.0.mlp.up_proj.weight", {500, 400}, kLinear};

at::Tensor values(const ParameterInfo& parameter, std::uint64_t seed = 1, const Architecture& a = small_llama()) {
  return initial_values(a, parameter, seed, 0, numel(parameter.shape));
}

double mean_of_power(const at::Tensor& x, int power) { return x.pow(power).mean().item<double>(); }

TEST(InitialValues, AreNormal) {
  const at::Tensor z = values(kMatrix) / small_llama().init_std;  // 200,000 values: standard error 1 / 447
  EXPECT_EQ(z.scalar_type(), at::kDouble);
  EXPECT_NEAR(mean_of_power(z, 1), 0, 0.01);
  EXPECT_NEAR(mean_of_power(z, 2), 1, 0.015);
  EXPECT_NEAR(mean_of_power(z, 3), 0, 0.04);
  EXPECT_NEAR(mean_of_power(z, 4), 3, 0.1);
  for (const double at : {-2.0, -1.0, -0.3, 0.0, 0.5, 1.5, 2.5}) {
    const double expected = 0.5 * std::erfc(-at / std::sqrt(2.0));
    EXPECT_NEAR(z.lt(at).to(at::kDouble).mean().item<double>(), expected, 0.005) << at;
  }
}

TEST(InitialValues, NeighboursDoNotDepend) {
  const at::Tensor z = values(kMatrix) / small_llama().init_std;
  for (const std::int64_t lag : {1, 2, 3, 4, 400}) {
    const auto n = z.numel() - lag;
    EXPECT_NEAR((z.narrow(0, 0, n) * z.narrow(0, lag, n)).mean().item<double>(), 0, 0.01) << lag;
  }
}

// Weights must not depend on the number of ranks: a shard is the same part of the whole.
TEST(InitialValues, APartEqualsThePartOfTheWhole) {
  const at::Tensor whole = values(kMatrix);
  for (const auto& [begin, end] : {std::pair{0, 0}, {0, 1}, {1, 2}, {3, 5}, {4, 8}, {7, 1001}, {199'999, 200'000}}) {
    const at::Tensor part = initial_values(small_llama(), kMatrix, 1, begin, end);
    EXPECT_TRUE(part.equal(whole.narrow(0, begin, end - begin))) << begin << ' ' << end;
  }
}

TEST(InitialValues, DependOnSeedAndName) {
  ParameterInfo other = kMatrix;
  other.name = "model.layers.1.mlp.up_proj.weight";
  EXPECT_TRUE(values(kMatrix).equal(values(kMatrix)));
  EXPECT_FALSE(values(kMatrix).equal(values(kMatrix, 2)));
  EXPECT_FALSE(values(kMatrix).equal(values(kMatrix, 1 + (1ull << 32))));
  EXPECT_NEAR((values(kMatrix) * values(other)).mean().item<double>() / 4e-4, 0, 0.01);
  EXPECT_NEAR((values(kMatrix) * values(kMatrix, 2)).mean().item<double>() / 4e-4, 0, 0.01);
}

// A change of the generator would change every run; this must be on purpose.
TEST(InitialValues, StayTheSameBetweenVersions) {
  const at::Tensor first = initial_values(small_llama(), kMatrix, 1234, 0, 2);
  const at::Tensor far = initial_values(small_llama(), kMatrix, 1234, 199'999, 200'000);
  EXPECT_EQ(first[0].item<double>(), -0.052036957786224643);
  EXPECT_EQ(first[1].item<double>(), 0.012044870862681982);
  EXPECT_EQ(far[0].item<double>(), -0.020905819782120149);
}

TEST(InitialValues, NormsBiasesAndResidualProjections) {
  Architecture a = small_llama();
  a.n_layers = 8;
  EXPECT_TRUE(values({"model.norm.weight", {10}, kNorm}).eq(1).all().item<bool>());
  EXPECT_TRUE(values({"model.layers.0.mlp.up_proj.bias", {10}, kBias}).eq(0).all().item<bool>());
  for (const char* name : {"model.layers.3.self_attn.o_proj.weight", "model.layers.3.mlp.down_proj.weight"}) {
    const double deviation = std::sqrt(mean_of_power(values({name, {500, 400}, kLinear}, 1, a), 2));
    EXPECT_NEAR(deviation, a.init_std / 4, a.init_std / 4 * 0.01) << name;
  }
}

}  // namespace
}  // namespace shale::test

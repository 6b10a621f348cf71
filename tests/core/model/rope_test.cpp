#include "core/model/rope.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

double at(const at::Tensor& x, std::int64_t i) { return x[i].item<double>(); }

// C33: the first frequency is exactly 1 and none depends on the dtype of the weights.
TEST(Rope, C33FrequenciesFollowTheFormula) {
  Architecture a = small_llama();
  a.head_dim = 64, a.rope_theta = 500000;
  const at::Tensor narrow = rope_frequencies(a, at::kFloat), wide = rope_frequencies(a, at::kDouble);
  ASSERT_EQ(narrow.numel(), 32);
  EXPECT_EQ(at(narrow, 0), 1.0);
  EXPECT_EQ(at(wide, 0), 1.0);
  for (std::int64_t i = 0; i < 32; ++i) {
    const double expected = std::pow(500000.0, -2.0 * static_cast<double>(i) / 64);
    EXPECT_NEAR(at(wide, i) / expected, 1, 1e-14);
    EXPECT_NEAR(at(narrow, i) / expected, 1, 1e-6);
  }
}

TEST(Rope, ScalingStretchesLongWavesOnly) {
  Architecture a = flavor("llama3.2-1b");
  const at::Tensor scaled = rope_frequencies(a, at::kDouble);
  const RopeScaling s = *a.rope_scaling;
  a.rope_scaling.reset();
  const at::Tensor plain = rope_frequencies(a, at::kDouble);
  int whole = 0, stretched = 0, between = 0;
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    const double turns = static_cast<double>(s.original_max_position_embeddings) * at(plain, i) / (2 * M_PI);
    const double ratio = at(scaled, i) / at(plain, i);
    if (turns > s.high_freq_factor) {
      EXPECT_EQ(ratio, 1);
      ++whole;
    } else if (turns < s.low_freq_factor) {
      EXPECT_NEAR(ratio, 1 / s.factor, 1e-15);
      ++stretched;
    } else {
      const double part = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      EXPECT_NEAR(ratio, part + (1 - part) / s.factor, 1e-12);
      ++between;
    }
  }
  EXPECT_TRUE(whole > 5 && stretched > 5 && between > 0) << whole << ' ' << stretched << ' ' << between;
}

TEST(Rope, TableHoldsCosThenSin) {
  RopeTables tables(small_llama(), 64);
  const at::Tensor table = tables.get(50, at::empty({1}, at::kDouble));
  ASSERT_EQ(table.sizes(), (at::IntArrayRef{50, 6}));
  const at::Tensor frequencies = rope_frequencies(small_llama(), at::kDouble);
  for (const std::int64_t position : {0, 1, 49}) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(position) * at(frequencies, i);
      EXPECT_NEAR(at(table[position], i), std::cos(angle), 1e-14);
      EXPECT_NEAR(at(table[position], i + 3), std::sin(angle), 1e-14);
    }
  }
}

TEST(Rope, TablesAreMadeOnceAndNeverInLowPrecision) {
  RopeTables tables(small_llama(), 64);
  const at::Tensor first = tables.get(64, at::empty({1}, at::kFloat));
  const at::Tensor second = tables.get(8, at::empty({1}, at::kBFloat16));
  EXPECT_EQ(first.scalar_type(), at::kFloat);
  EXPECT_EQ(second.scalar_type(), at::kFloat);
  EXPECT_EQ(first.data_ptr(), second.data_ptr());
  EXPECT_EQ(tables.get(8, at::empty({1}, at::kDouble)).scalar_type(), at::kDouble);
  error_of(Code::internal, [&] { tables.get(65, at::empty({1}, at::kFloat)); });
}

}  // namespace
}  // namespace shale::test

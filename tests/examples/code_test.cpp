// The block code of examples/zeropp: float types against the compiler's own arithmetic, the rounding bound, layout,
// and what is not finite.
#include "examples/zeropp/block_code.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace zeropp {
namespace {

// The nearest number with `digits` binary digits whose last one is worth at least `least`: both types by definition.
float rounded(double x, int digits, double least, double most) {
  if (x == 0 || !std::isfinite(x)) return static_cast<float>(x);
  const double step = std::max(std::exp2(std::ilogb(x) - digits + 1), least);
  const double near = std::nearbyint(x / step) * step;
  return std::abs(near) > most ? std::copysign(INFINITY, static_cast<float>(x)) : static_cast<float>(near);
}

TEST(BlockCode, HalfTypesKeepEveryValueTheyHave) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float half = widen(F16{static_cast<std::uint16_t>(bits)});
    const int exponent = static_cast<int>(bits >> 10 & 31u);
    const double fraction = (bits & 1023u) / 1024.0;
    double want = exponent == 0 ? fraction * 0x1p-14 : (1 + fraction) * std::exp2(exponent - 15);
    if (exponent == 31) want = fraction == 0 ? INFINITY : NAN;
    if (bits & 0x8000u) want = -want;
    F16 again{};
    narrow(half, again);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(half) && std::isnan(widen(again))) << bits;
      continue;
    }
    ASSERT_EQ(half, static_cast<float>(want)) << bits;
    ASSERT_EQ(again.bits, bits);
    Bf16 brain{};
    narrow(widen(Bf16{static_cast<std::uint16_t>(bits)}), brain);
    ASSERT_TRUE(brain.bits == bits || std::isnan(widen(brain))) << bits;
  }
}

TEST(BlockCode, NarrowingRoundsToNearestEven) {
  std::mt19937 random(1);
  for (int k = 0; k < 200000; ++k) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(x)) continue;
    F16 half{};
    Bf16 brain{};
    narrow(x, half), narrow(x, brain);
    ASSERT_EQ(widen(half), rounded(x, 11, 0x1p-24, 65504)) << x;
    ASSERT_EQ(widen(brain), rounded(x, 8, 0x1p-133, 0x1.fep127)) << x;
  }
  for (const float x : {65519.99f, 65520.0f, 0x1p-25f, 0x1.8p-25f, 0x1.ffcp-15f, 0x1.fffp-15f, 1.00048828125f}) {
    F16 half{};
    narrow(x, half);
    EXPECT_EQ(widen(half), rounded(x, 11, 0x1p-24, 65504)) << x;
  }
}

std::vector<float> some_numbers(std::uint64_t n, unsigned salt) {
  std::mt19937 random(salt);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (std::uint64_t i = 0; i < n; ++i) x[i] = normal(random) * std::exp2(static_cast<float>(i / 100 % 40) - 20);
  return x;
}

std::vector<float> there_and_back(const Format& f, const std::vector<float>& x, std::uint64_t n) {
  std::vector<char> code(f.bytes(n) + 1, 'e');
  const Coder coder{f, n};
  coder.encode(coder.blocks(), x.data(), x.size(), code.data());
  EXPECT_EQ(code.back(), 'e') << "wrote past its end";
  std::vector<float> back(n, 77);
  coder.decode(coder.blocks(), code.data(), [&](std::uint64_t at, std::uint32_t count, const float* part) {
    std::copy(part, part + count, back.begin() + static_cast<std::ptrdiff_t>(at));
  });
  return back;
}

TEST(BlockCode, ErrorIsAtMostHalfAStepOfTheBlock) {
  for (const std::uint32_t bits : {4u, 8u})
    for (const bool bf16 : {false, true})
      for (const std::uint32_t block : {2u, 64u, 256u, 4096u})
        for (const std::uint64_t n : {1u, 63u, 64u, 65u, 1000u, 5001u}) {
          const Format f{block, bits, bf16};
          const auto x = some_numbers(n, bits + block), back = there_and_back(f, x, n);
          for (std::uint64_t b = 0; b < f.blocks(n); ++b) {
            float most = 0;
            for (std::uint64_t i = b * block; i < std::min<std::uint64_t>(n, (b + 1) * block); ++i)
              most = std::max(most, std::abs(x[i]));
            const double step = most / (bits == 8 ? 127.0 : 7.0) * (bf16 ? 1.0079 : 1.000001);
            for (std::uint64_t i = b * block; i < std::min<std::uint64_t>(n, (b + 1) * block); ++i)
              ASSERT_LE(std::abs(static_cast<double>(x[i]) - back[i]), step / 2 * 1.00001)
                  << bits << " bits, block " << block << ", " << i << " of " << n;
          }
        }
}

TEST(BlockCode, SizeIsScalesAndCodes) {
  EXPECT_EQ((Format{256, 8, false}.bytes(1000)), 4 * 4 + 1000);
  EXPECT_EQ((Format{256, 8, true}.bytes(1000)), 4 * 2 + 1000);
  EXPECT_EQ((Format{64, 4, true}.bytes(1001)), 16 * 2 + 501);
  EXPECT_EQ((Format{64, 4, true}.bytes(0)), 0);
}

TEST(BlockCode, WhatIsMissingIsZeroAndZeroIsExact) {
  for (const std::uint32_t bits : {4u, 8u}) {
    const Format f{64, bits, true};
    const auto back = there_and_back(f, {3, -3}, 200);
    EXPECT_NEAR(back[0], 3, 0.03);
    EXPECT_EQ(back[0], -back[1]);
    for (std::uint64_t i = 2; i < 200; ++i) ASSERT_EQ(back[i], 0);
    for (const float tiny : {FLT_MIN / 4, -FLT_MIN, 1e-30f})
      EXPECT_LE(std::abs(there_and_back(f, {tiny}, 1)[0] - tiny), std::max(FLT_MIN, std::abs(tiny) / 14));
    EXPECT_TRUE(std::isfinite(there_and_back(f, {3e38f}, 1)[0]));
  }
}

TEST(BlockCode, WhatIsNotFiniteIsNotFiniteAfterwards) {
  for (const std::uint32_t bits : {4u, 8u})
    for (const bool bf16 : {false, true})
      for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
        auto x = some_numbers(300, 3);
        x[130] = bad;
        const auto back = there_and_back({64, bits, bf16}, x, 300);
        EXPECT_FALSE(std::isfinite(back[130]));
        EXPECT_TRUE(std::isfinite(back[127]) && std::isfinite(back[192])) << "other blocks keep their numbers";
      }
}

TEST(BlockCode, PartsAreTheSameAsTheWhole) {
  const Format f{64, 4, true};
  const auto x = some_numbers(1001, 5);
  std::vector<char> whole(f.bytes(1001)), parts(f.bytes(1001));
  const Coder coder{f, 1001};
  coder.encode(coder.blocks(), x.data(), 1001, whole.data());
  for (std::uint64_t b = 16; b > 0; --b) coder.encode({b - 1, b}, x.data(), 1001, parts.data());
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace zeropp

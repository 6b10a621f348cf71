// Numbers as small integers, a scale for each block of them: symmetric, rounded to nearest even. What a block holds
// that is not finite makes its scale NaN, so nothing is clipped in silence. The loops are for the vectoriser.
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <limits>

#include "shale/plugin.h"

namespace zeropp {

inline constexpr std::uint32_t kLargestBlock = 4096;

// n numbers lie as all scales, then all codes: int8, or int4 with two in a byte, the first in the low half.
struct Format {
  std::uint32_t block = 256;  // even
  std::uint32_t bits = 8;     // or 4
  bool bf16_scales = false;   // else fp32

  std::uint64_t blocks(std::uint64_t n) const { return (n + block - 1) / block; }
  std::uint64_t scale_bytes(std::uint64_t n) const { return blocks(n) * (bf16_scales ? 2 : 4); }
  std::uint64_t bytes(std::uint64_t n) const { return scale_bytes(n) + (n * bits + 7) / 8; }
};

// ---- the float types as float ----
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float widen(float x) { return x; }
inline float widen(double x) { return static_cast<float>(x); }
inline float widen(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
inline float widen(F16 x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // 2^112 moves the exponent from one bias to the other, subnormal numbers included.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

inline void narrow(float x, float& to) { to = x; }
inline void narrow(float x, double& to) { to = static_cast<double>(x); }
inline void narrow(float x, Bf16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1), nan = bits | 0x400000u;
  to.bits = static_cast<std::uint16_t>((x == x ? rounded : nan) >> 16);
}
inline void narrow(float x, F16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  std::uint32_t rest = 0;
  if (size > 0x7f800000u)
    rest = 0x7e00u;
  else if (size >= 0x477ff000u)  // 65520 and more round to infinity
    rest = 0x7c00u;
  else if (size < 0x38800000u)  // subnormal there: adding 0.5 leaves multiples of 2^-24 in the low bits
    rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  else
    rest = (size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13;
  to.bits = static_cast<std::uint16_t>(sign | rest);
}

// ---- scales ----
inline float scale_for(const float* x, std::uint32_t n, const Format& f) {
  std::int32_t most = 0;  // as integers NaN is above infinity, and that above all other sizes
  for (std::uint32_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  if (most >= 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::max(std::bit_cast<float>(most) / (f.bits == 8 ? 127.0f : 7.0f), FLT_MIN);
  if (!f.bf16_scales) return scale;
  // Rounded up: a smaller one would clip the largest number of the block.
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) + 0xffffu) & 0xffff0000u);
}

inline void put_scale(char* code, std::uint64_t block, float scale, const Format& f) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const auto high = static_cast<std::uint16_t>(bits >> 16);
  if (f.bf16_scales)
    std::memcpy(code + 2 * block, &high, 2);
  else
    std::memcpy(code + 4 * block, &bits, 4);
}

inline float get_scale(const char* code, std::uint64_t block, const Format& f) {
  std::uint32_t bits = 0;
  std::memcpy(f.bf16_scales ? reinterpret_cast<char*>(&bits) + 2 : reinterpret_cast<char*>(&bits),
              code + (f.bf16_scales ? 2 : 4) * block, f.bf16_scales ? 2 : 4);
  return std::bit_cast<float>(bits);
}

// ---- blocks ----
// x / scale as the nearest integer: adding 1.5 * 2^23 leaves it in the low bits.
inline std::int32_t round_code(float x, float inverse) {
  return std::bit_cast<std::int32_t>(x * inverse + 12582912.0f) - 0x4b400000;
}

inline void encode_block(const float* x, std::uint32_t n, float scale, std::uint32_t bits, unsigned char* to) {
  const float inverse = 1 / scale;
  if (bits == 8) {
    for (std::uint32_t i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(round_code(x[i], inverse));
    return;
  }
  const auto half = [&](std::uint32_t i) { return static_cast<unsigned>(round_code(x[i], inverse)) & 15u; };
  for (std::uint32_t i = 0; i < n / 2; ++i) to[i] = static_cast<unsigned char>(half(2 * i) | half(2 * i + 1) << 4);
  if (n % 2 == 1) to[n / 2] = static_cast<unsigned char>(half(n - 1));
}

inline void decode_block(const unsigned char* code, std::uint32_t n, float scale, std::uint32_t bits, float* x) {
  if (bits == 8) {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = scale * static_cast<float>(static_cast<std::int8_t>(code[i]));
    return;
  }
  const auto low = [](unsigned byte) { return static_cast<float>(static_cast<int>((byte & 15u) ^ 8u) - 8); };
  for (std::uint32_t i = 0; i < n / 2; ++i) {
    x[2 * i] = scale * low(code[i]);
    x[2 * i + 1] = scale * low(static_cast<unsigned>(code[i]) >> 4);
  }
  if (n % 2 == 1) x[n - 1] = scale * low(code[n / 2]);
}

// ---- many numbers ----
struct Blocks {
  std::uint64_t first, last;
};

// n numbers as codes.
struct Coder {
  Format format;
  std::uint64_t n;

  Blocks blocks() const { return {0, format.blocks(n)}; }
  std::uint64_t bytes() const { return format.bytes(n); }
  std::uint32_t count(std::uint64_t at) const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(format.block, n - at));
  }

  // Of the n numbers the first `valid` are at x, the others are 0.
  template <class T>
  void encode(Blocks some, const T* x, std::uint64_t valid, char* to) const {
    float block[kLargestBlock];
    auto* codes = reinterpret_cast<unsigned char*>(to + format.scale_bytes(n));
    for (std::uint64_t b = some.first; b < some.last; ++b) {
      const std::uint64_t at = b * format.block;
      const std::uint32_t size = count(at);
      const auto here = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, valid > at ? valid - at : 0));
      for (std::uint32_t i = 0; i < here; ++i) block[i] = widen(x[at + i]);
      std::fill(block + here, block + size, 0.0f);
      const float scale = scale_for(block, size, format);
      put_scale(to, b, scale, format);
      encode_block(block, size, scale, format.bits, codes + at * format.bits / 8);
    }
  }

  // Calls use(begin, count, numbers) for each block.
  template <class F>
  void decode(Blocks some, const char* from, F use) const {
    float block[kLargestBlock];
    const auto* codes = reinterpret_cast<const unsigned char*>(from + format.scale_bytes(n));
    for (std::uint64_t b = some.first; b < some.last; ++b) {
      const std::uint64_t at = b * format.block;
      const std::uint32_t size = count(at);
      decode_block(codes + at * format.bits / 8, size, get_scale(from, b, format), format.bits, block);
      use(at, size, static_cast<const float*>(block));
    }
  }
};

}  // namespace zeropp

#include "core/data/permutation.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace shale {
namespace {

constexpr int kRounds = 8;
constexpr int kLeastHalfBits = 3;  // smaller halves mix too little to reach most orders of a few elements
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

// A bijection of 64-bit words in which every output bit depends on every input bit (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A Feistel network: a bijection of 2 * half_bits bits, whatever the round function is.
std::uint64_t feistel(std::uint64_t x, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = x >> half_bits, right = x & mask;
  for (int round = 1; round <= kRounds; ++round) {
    const std::uint64_t out = mix(right + mix(key + static_cast<std::uint64_t>(round) * kGolden));
    left ^= out & mask;
    std::swap(left, right);
  }
  return left << half_bits | right;
}

}  // namespace

std::int64_t permuted(std::int64_t place, std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(n - 1));
  const int half_bits = std::max(kLeastHalfBits, (bits + 1) / 2);
  const std::uint64_t key = mix(mix(seed + kGolden) ^ (epoch * kGolden + 1));
  // Outside of 0 .. n-1 walk on along the cycle: the walk comes back in, as it started in there.
  auto x = static_cast<std::uint64_t>(place);
  do {
    x = feistel(x, half_bits, key);
  } while (x >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(x);
}

}  // namespace shale

#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "core/base/error.h"
#include "core/model/model.h"

namespace shale {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Philox4x32-10, a counter-based generator: 128 random bits from a 128-bit counter and a 64-bit key (Salmon, Moraes,
// Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011, https://doi.org/10.1145/2063384.2063405).
Block philox(Block counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * counter[0], b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return counter;
}

// FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv): keeps the streams of two parameters apart.
std::uint64_t hash(const std::string& name) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const unsigned char c : name) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

// log((bits + 0.5) / 2^32) to 1e-12, from the series of atanh.
double log_uniform(std::uint32_t bits) {
  const auto x = std::bit_cast<std::uint64_t>(bits + 0.5);
  double exponent = static_cast<double>(x >> 52) - (1023 + 32);
  double m = std::bit_cast<double>((x & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);  // [1, 2)
  const int upper = m > std::numbers::sqrt2;  // selected without branches, which would be guessed wrong half the time
  m *= 1 - 0.5 * upper, exponent += upper;
  const double s = (m - 1) / (m + 1), q = s * s;  // q < 0.03
  const double series = 1 + q * (1. / 3 + q * (1. / 5 + q * (1. / 7 + q * (1. / 9 + q * (1. / 11 + q * (1. / 13))))));
  return exponent * std::numbers::ln2 + 2 * s * series;
}

// A point of the unit circle, uniform in its angle: 30 bits choose it in the right quarter, two bits the quarter.
std::pair<double, double> circle(std::uint32_t bits) {
  const double angle = ((bits >> 2) + 0.5) * (std::numbers::pi / 2 * 0x1p-30) - std::numbers::pi / 4;
  const double q = angle * angle;
  const double sine =
      angle * (1 - q * (1. / 6 - q * (1. / 120 - q * (1. / 5040 - q * (1. / 362880 - q * (1. / 39916800))))));
  const double cosine =
      1 - q * (1. / 2 - q * (1. / 24 - q * (1. / 720 - q * (1. / 40320 - q * (1. / 3628800 - q * (1. / 479001600))))));
  const double sign = 1 - 2. * (bits & 1), swap = bits >> 1 & 1;
  return {sign * (cosine + swap * (sine - cosine)), sign * (sine + swap * (cosine - sine))};
}

// Standard normal values 4 i to 4 i + 3 of a parameter's stream, by Box and Muller (1958) from 32-bit uniforms. Only
// arithmetic that IEEE 754 rounds alike everywhere: no mathematical library has a say in the first weights of a run.
class Normals {
 public:
  Normals(std::uint64_t seed, const std::string& name) : seed_(seed), name_(hash(name)) {}

  std::array<double, 4> block(std::uint64_t i) const {
    const Block bits = philox({low(i), high(i), low(name_), high(name_)}, low(seed_), high(seed_));
    std::array<double, 4> out;
    for (std::size_t pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2 * log_uniform(bits[pair]));
      const auto [x, y] = circle(bits[pair + 1]);
      out[pair] = radius * x, out[pair + 1] = radius * y;
    }
    return out;
  }

 private:
  static std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  std::uint64_t seed_, name_;
};

double standard_deviation(const Architecture& a, const std::string& name) {
  const bool residual = name.ends_with("self_attn.o_proj.weight") || name.ends_with("mlp.down_proj.weight");
  return residual ? a.init_std / std::sqrt(2.0 * static_cast<double>(a.n_layers)) : a.init_std;
}

}  // namespace

at::Tensor initial_values(const Architecture& a, const ParameterInfo& parameter, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end) {
  check(0 <= begin && begin <= end && end <= numel(parameter.shape), "initial values ", begin, " to ", end, " of ",
        parameter.name, " with ", numel(parameter.shape), " elements");
  if (parameter.role & kNorm) return at::full({end - begin}, 1.0, at::kDouble);
  if (parameter.role & kBias) return at::full({end - begin}, 0.0, at::kDouble);
  return normal_values(seed, parameter.name, begin, end).mul_(standard_deviation(a, parameter.name));
}

at::Tensor normal_values(std::uint64_t seed, const std::string& name, std::int64_t begin, std::int64_t end) {
  const Normals normals(seed, name);
  at::Tensor out = at::empty({end - begin}, at::kDouble);
  auto* values = out.data_ptr<double>();
  for (std::int64_t i = begin; i < end;) {
    const auto block = normals.block(static_cast<std::uint64_t>(i / 4));
    for (auto k = i % 4; k < 4 && i < end; ++k, ++i) values[i - begin] = block[static_cast<std::size_t>(k)];
  }
  return out;
}

}  // namespace shale

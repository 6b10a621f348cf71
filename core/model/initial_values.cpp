#include <array>
#include <cmath>
#include <numbers>

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

// Standard normal values 4 i to 4 i + 3 of a parameter's stream, by Box and Muller (1958) from 32-bit uniforms.
class Normals {
 public:
  Normals(std::uint64_t seed, const std::string& name) : seed_(seed), name_(hash(name)) {}

  std::array<double, 4> block(std::uint64_t i) const {
    const Block bits = philox({low(i), high(i), low(name_), high(name_)}, low(seed_), high(seed_));
    std::array<double, 4> out;
    for (int pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2 * std::log(uniform(bits[pair])));
      const double angle = 2 * std::numbers::pi * uniform(bits[pair + 1]);
      out[pair] = radius * std::cos(angle), out[pair + 1] = radius * std::sin(angle);
    }
    return out;
  }

 private:
  static std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
  static double uniform(std::uint32_t bits) { return (bits + 0.5) * 0x1p-32; }  // in (0, 1)

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
  const Normals normals(seed, parameter.name);
  const double scale = standard_deviation(a, parameter.name);
  at::Tensor out = at::empty({end - begin}, at::kDouble);
  auto* values = out.data_ptr<double>();
  for (std::int64_t i = begin; i < end;) {
    const auto block = normals.block(static_cast<std::uint64_t>(i / 4));
    for (auto k = i % 4; k < 4 && i < end; ++k, ++i) values[i - begin] = scale * block[static_cast<std::size_t>(k)];
  }
  return out;
}

}  // namespace shale

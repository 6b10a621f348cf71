// A model as data: names, shapes and roles of its parameters, in units. Made without allocating anything; the same on
// every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shale {

struct Architecture;

using Shape = std::vector<std::int64_t>;

std::int64_t numel(const Shape&);  // 1 for the empty shape

// What a parameter is; bits, as in sdk/include/shale/services.h.
enum ParameterRole : std::uint32_t {
  kEmbedding = 4,
  kNorm = 8,
  kBias = 16,
  kHead = 32,    // projection to the vocabulary
  kLinear = 64,  // weight of a matrix product, [out, in]
};

struct ParameterInfo {
  std::string name;  // Hugging Face spelling: "model.layers.0.mlp.up_proj.weight"
  Shape shape;
  std::uint32_t role = 0;  // ParameterRole bits
  bool frozen = false;     // never changes: no gradient, no optimizer state
};

enum class UnitKind : std::uint32_t { embedding = 1, layer = 2, head = 3 };

// What is gathered, computed and reduced together. A unit owns `parameters`; `borrows` names parameters that an earlier
// unit owns and this one uses too (tied head).
struct UnitInfo {
  std::string name;  // "embedding", "layers.0", "head"
  UnitKind kind = UnitKind::layer;
  std::vector<ParameterInfo> parameters;
  std::vector<std::string> borrows;
  int layers = 1;  // how many are computed in it, one after the other
};

struct ModelInfo {
  std::vector<UnitInfo> units;  // in the order of their first use
  std::vector<int> order;       // units as the forward runs them, one used twice twice; empty = each once, in order
  std::int64_t numel() const;   // of all owned parameters, frozen ones too
  std::vector<int> run_order() const;  // `order`, filled in when empty
};

// The units of a Llama 2/3 decoder: "embedding", "layers.0" ..., "head". In a layer the weights of q, k, v and those of
// gate, up stand side by side, biases follow all weights. `frozen` holds patterns of parameter names that do not train
// ("*" matches anything); a pattern that matches nothing is Error{config} with the nearest name.
ModelInfo describe(const Architecture&, std::span<const std::string> frozen = {});

}  // namespace shale

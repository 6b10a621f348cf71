// A decoder model as a list of units with plain parameter views; it knows nothing of sharding. Its forward functions
// take the weights they are given, so whoever owns the memory decides where they live.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/model/architecture.h"
#include "core/model/description.h"
#include "core/ops/weight.h"

namespace shale {

// The tensors that every unit of a forward may look at.
struct ModelInput {
  at::Tensor tokens;   // [B, T] int64
  at::Tensor targets;  // [B, T] int64; undefined: the head returns logits instead of the loss
};

// Computes unit `index`. x: [B, T, dim], undefined for the embedding. weights: the unit's own parameters in the order
// of its UnitInfo, then the borrowed ones. Returns [B, T, dim]; the head returns the sum of the negative
// log-likelihoods over all targets (scalar, float32 or wider), or logits [B, T, vocabulary] without targets.
// Must not change x in place.
using UnitForward =
    std::function<at::Tensor(const ModelInput&, std::span<Weight> weights, const at::Tensor& x)>;

struct Model {
  Architecture architecture;
  ModelInfo info;
  std::vector<UnitForward> forward;  // one per unit of info
};

// Builds the units of describe(architecture, frozen). max_seq_len: the longest T that will be run. Allocates nothing:
// the rotary table is made at the first forward on a device and kept. Forward functions may run on any thread.
Model make_model(const Architecture&, std::span<const std::string> frozen, std::int64_t max_seq_len);

// First value of a parameter, elements [begin, end) of its row-major order, float64 on the CPU: depends on (seed, name,
// element) only, not on the rank, world size or thread. Norms are 1, biases 0, matrices normal with standard deviation
// init_std; those that write into the residual stream (o_proj, down_proj) have init_std / sqrt(2 n_layers), so that its
// variance does not grow with depth.
at::Tensor initial_values(const Architecture&, const ParameterInfo&, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end);

// Standard normal values [begin, end) of the stream (seed, name), float64 on the CPU.
at::Tensor normal_values(std::uint64_t seed, const std::string& name, std::int64_t begin, std::int64_t end);

}  // namespace shale

// What a rank owns of a flat, as the optimizer and snapshots see it. The tensors are views of the engine's memory.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/sharding/layout.h"

namespace shale {

// A parameter's part of a shard.
struct ShardPiece {
  const ParameterInfo* parameter = nullptr;
  Overlap range;
};

struct Shard {
  FlatLayout layout;
  ShardRange range;
  at::Tensor master;               // [length], master dtype
  at::Tensor grad;                 // [length], accumulate dtype; undefined when frozen
  at::Tensor exp_avg, exp_avg_sq;  // [length], moments dtype; undefined when frozen
  std::vector<ShardPiece> pieces;  // in shard order, none empty
  bool writer = true;              // this rank writes it into snapshots (first of its replicas)
  bool counted = true;             // this rank adds it to the norm (first of the replicas it is summed over)
  bool drifts = false;             // its replicas train apart: they are not equal
};

}  // namespace shale

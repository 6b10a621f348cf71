// The gradient norm over everything the run trains.
#pragma once

#include <deque>

#include "core/sharding/shard.h"

namespace shale {

// Sum of the squares of this rank's gradient shards, in float64, each element of the model counted on one rank only
// (the first of its replicas). Summed over all ranks it is the square of the norm.
double squared_norm(const std::deque<Shard>&);

// Factor that brings a norm down to max_norm: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_;
// max_norm 0 = no clipping.
double clip_factor(double norm, double max_norm);

}  // namespace shale

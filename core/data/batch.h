// What one micro-step computes on. A value; tensors are CPU int64 and owned.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace shale {

struct Batch {
  at::Tensor tokens;           // [B, T]
  at::Tensor targets;          // [B, T], the token after each; -100 where nothing is to be predicted
  std::int64_t n_targets = 0;  // how many targets count
};

}  // namespace shale

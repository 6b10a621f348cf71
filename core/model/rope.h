// Rotary angles of a Llama decoder (Su et al. 2021, https://arxiv.org/abs/2104.09864), computed as transformers does.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>

#include "core/model/architecture.h"

namespace shale {

// Frequencies [head_dim / 2] on the CPU, largest first; the first is exactly 1. Float gives the bits of transformers,
// Double the same formula in float64.
at::Tensor rope_frequencies(const Architecture&, at::ScalarType);

// The table that ops/rope takes, made once per device and dtype and kept. Any thread.
class RopeTables {
 public:
  RopeTables(const Architecture& architecture, std::int64_t positions)
      : architecture_(architecture), positions_(positions) {}

  // [length, head_dim]: cos in the first half of a row, sin in the second. float64 for float64 activations, float32
  // for all others: angles in bfloat16 would be wrong by whole turns at later positions.
  at::Tensor get(std::int64_t length, const at::Tensor& activations);

 private:
  Architecture architecture_;
  std::int64_t positions_;
  std::mutex mutex_;
  std::map<std::pair<std::string, at::ScalarType>, at::Tensor> tables_;
};

}  // namespace shale

// Shards of a made-up unit, without an engine.
#pragma once

#include <deque>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "core/sharding/shard.h"

namespace shale {

inline const std::vector<ParameterInfo>& unit_parameters() {
  static const std::vector<ParameterInfo> parameters{
      {"matrix", {7, 13}, kLinear}, {"norm", {13}, kNorm}, {"bias", {7}, kBias}, {"table", {97, 3}, kEmbedding}};
  return parameters;
}

// Numbers without a pattern that repeats, [n] float64.
inline at::Tensor values(std::int64_t n, double salt) { return ((at::arange(n, at::kDouble) + salt) * 1.7).sin(); }

// What rank `rank` of `ways` owns of a flat of all parameters: masters as values(n, 0), no gradients, no moments yet.
inline Shard make_shard(int ways, int rank, at::ScalarType dtype) {
  Shard s;
  for (std::size_t i = 0; i < unit_parameters().size(); ++i) {
    s.layout.parameters.push_back(static_cast<int>(i));
    s.layout.offsets.push_back(s.layout.numel);
    s.layout.numel += numel(unit_parameters()[i].shape);
  }
  s.range = shard_range(s.layout.numel, ways, rank, 1);
  s.master = values(s.layout.numel, 0).narrow(0, s.range.begin, s.range.length).to(dtype).contiguous();
  for (auto* t : {&s.grad, &s.exp_avg, &s.exp_avg_sq}) *t = at::zeros({s.range.length}, s.master.options());
  for (std::size_t i = 0; i < s.layout.parameters.size(); ++i) {
    const auto& info = unit_parameters()[i];
    const auto range = overlap(s.layout, i, numel(info.shape), s.range);
    if (range.count > 0) s.pieces.push_back({&info, range});
  }
  return s;
}

// The shard's part of a gradient of the whole flat.
inline void set_grad(Shard& s, const at::Tensor& flat) { s.grad.copy_(flat.narrow(0, s.range.begin, s.range.length)); }

}  // namespace shale

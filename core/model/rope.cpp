#include "core/model/rope.h"

#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "core/base/error.h"

namespace shale {
namespace {

// Llama 3's stretching: wavelengths beyond the old context by `factor`, short ones not at all, smooth between.
at::Tensor stretch(const at::Tensor& frequencies, const RopeScaling& s) {
  const double context = static_cast<double>(s.original_max_position_embeddings);
  const at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  const at::Tensor is_long = wavelengths > context / s.low_freq_factor;
  const at::Tensor is_short = wavelengths < context / s.high_freq_factor;
  const at::Tensor smooth = (context / wavelengths - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  const at::Tensor between = (1 - smooth) * frequencies / s.factor + smooth * frequencies;
  return at::where(is_long, frequencies / s.factor, at::where(is_short, frequencies, between));
}

at::Tensor make_table(const Architecture& a, std::int64_t positions, at::ScalarType dtype) {
  const at::Tensor angles = at::outer(at::arange(positions, dtype), rope_frequencies(a, dtype));
  return at::cat({angles.cos(), angles.sin()}, 1);
}

}  // namespace

at::Tensor rope_frequencies(const Architecture& a, at::ScalarType dtype) {
  const at::Tensor exponents = at::arange(0, a.head_dim, 2, dtype) / a.head_dim;
  const at::Tensor frequencies = 1 / at::pow(a.rope_theta, exponents);
  return a.rope_scaling ? stretch(frequencies, *a.rope_scaling) : frequencies;
}

at::Tensor RopeTables::get(std::int64_t length, const at::Tensor& activations) {
  check(length <= positions_, "sequence of ", length, " positions; the model was made for ", positions_);
  const auto dtype = activations.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::pair key{activations.device().str(), dtype};
  std::lock_guard lock(mutex_);
  auto it = tables_.find(key);
  if (it == tables_.end()) {
    // The table outlives this call, so it must not depend on the mode the caller is in.
    c10::InferenceMode normal(false);
    c10::NoGradGuard no_graph;
    it = tables_.emplace(key, make_table(architecture_, positions_, dtype).to(activations.device())).first;
  }
  return it->second.narrow(0, 0, length);
}

}  // namespace shale

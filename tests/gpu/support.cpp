#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "tests/gpu/check.h"

namespace shale {

double error_of(const at::Tensor& found, const at::Tensor& wanted) {
  expect(found.sizes() == wanted.sizes(), "sizes ", found.sizes(), " instead of ", wanted.sizes());
  const auto a = found.detach().to(at::kCPU, at::kDouble), b = wanted.detach().to(at::kCPU, at::kDouble);
  if (a.numel() == 0) return 0;
  const double worst = (a - b).abs().max().item<double>(), scale = b.abs().max().item<double>();
  return worst != worst ? 1e300 : worst / std::max(scale, 1e-30);  // a NaN is as wrong as can be
}

at::Tensor numbers(at::IntArrayRef shape, int salt, const at::TensorOptions& options) {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  const auto i = at::arange(n, at::kDouble) + 1000.0 * salt;
  return (i * 1.7).sin().view(shape).to(options.dtype().toScalarType()).to(options.device());
}

Busy::Busy(at::Device device) {
  if (device.is_cpu()) return;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  a_ = at::zeros({4096, 4096}, options), b_ = at::zeros({4096, 4096}, options);
}

void Busy::work() {
  for (int i = 0; a_.defined() && i < 20; ++i) at::mm_out(b_, a_, a_);
}

}  // namespace shale

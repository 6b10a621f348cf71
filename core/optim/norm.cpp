#include "core/optim/norm.h"

#include <algorithm>

#include <ATen/ops/dot.h>

#include "core/base/error.h"
#include "core/optim/kernels.h"

namespace shale {
namespace {

// In parts: a whole shard in float64 is memory that no forecast knows of. Stays on the device.
void add_squares(at::Tensor& sum, const at::Tensor& grad) {
  constexpr std::int64_t kPart = 1 << 22;
  for (std::int64_t i = 0; i < grad.numel(); i += kPart) {
    const auto part = grad.narrow(0, i, std::min(kPart, grad.numel() - i)).to(at::kDouble);
    const auto squares = part.dot(part);
    sum = sum.defined() ? sum.add_(squares) : squares;
  }
}

}  // namespace

double squared_norm(const std::deque<Shard>& shards) {
  const auto& k = optim_kernels();
  double sum = 0;
  at::Tensor device_sum;
  for (auto& s : shards) {
    if (!s.counted || !s.grad.defined() || s.range.length == 0) continue;
    if (!s.grad.is_cpu())
      add_squares(device_sum, s.grad);
    else if (s.grad.scalar_type() == at::kDouble)
      sum += k.squares_f64(s.grad.data_ptr<double>(), s.range.length);
    else
      sum += k.squares_f32(s.grad.data_ptr<float>(), s.range.length);
  }
  return device_sum.defined() ? sum + device_sum.item<double>() : sum;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shale

#include "core/optim/norm.h"

#include <algorithm>

#include <ATen/ops/dot.h>

#include "core/base/error.h"
#include "core/optim/kernels.h"

namespace shale {

double squared_norm(const std::deque<Shard>& shards) {
  const auto& k = optim_kernels();
  double sum = 0;
  for (auto& s : shards) {
    if (!s.counted || !s.grad.defined() || s.range.length == 0) continue;
    if (!s.grad.is_cpu())
      sum += s.grad.to(at::kDouble).dot(s.grad.to(at::kDouble)).item<double>();
    else if (s.grad.scalar_type() == at::kDouble)
      sum += k.squares_f64(s.grad.data_ptr<double>(), s.range.length);
    else
      sum += k.squares_f32(s.grad.data_ptr<float>(), s.range.length);
  }
  return sum;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shale

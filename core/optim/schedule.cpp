#include "core/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace shale {

double Schedule::at(std::int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  const auto rest = std::max<std::int64_t>(1, total_steps - warmup_steps);
  auto decay = rest;
  if (decay_ratio >= 0)
    decay = std::min<std::int64_t>(rest, std::llround(decay_ratio * static_cast<double>(total_steps)));
  const auto start = total_steps - decay;
  if (step < start || decay == 0) return lr;
  const double x = std::min(1.0, static_cast<double>(step - start) / static_cast<double>(decay));
  double left = 1 - x;
  if (decay_type == "cosine") left = 0.5 * (1 + std::cos(M_PI * x));
  if (decay_type == "sqrt") left = 1 - std::sqrt(x);
  return lr * (min_lr_factor + (1 - min_lr_factor) * left);
}

}  // namespace shale

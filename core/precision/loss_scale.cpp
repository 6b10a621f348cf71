#include "core/precision/loss_scale.h"

#include <algorithm>

#include "core/base/error.h"

namespace shale {

LossScaler::LossScaler(std::optional<LossScale> policy) : policy_(policy), scale_(policy ? policy->initial : 1) {}

void LossScaler::update(bool finite) {
  if (!policy_) return;
  if (finite) {
    skips_ = 0;
    if (policy_->growth_steps > 0 && ++clean_ >= policy_->growth_steps) {
      scale_ = std::min(scale_ * policy_->growth, policy_->max);
      clean_ = overflows_ = 0;
    }
    return;
  }
  clean_ = 0;
  if (++skips_ > policy_->max_skips)
    fail(Code::numeric, "gradients were not finite in ", skips_, " steps in a row at loss scale ", scale_,
         "; lower the learning rate or use bf16_mixed");
  if (policy_->growth_steps > 0 && ++overflows_ >= policy_->hysteresis) {
    scale_ = std::max(scale_ * policy_->backoff, policy_->min);
    overflows_ = 0;
  }
}

void LossScaler::restore(const State& s) {
  if (!policy_) return;
  scale_ = s.scale, clean_ = s.clean, overflows_ = s.overflows, skips_ = s.skips;
}

}  // namespace shale

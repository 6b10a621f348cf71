// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <string>

namespace shale {

struct Schedule {
  double lr = 8e-4, min_lr_factor = 0;
  std::int64_t warmup_steps = 0, total_steps = 1;
  double decay_ratio = -1;            // part of total_steps that decays; -1: everything after the warm-up
  std::string decay_type = "linear";  // linear | cosine | sqrt

  // step from 0. Warm-up: lr (step + 1) / (warmup_steps + 1). Then lr until the decay begins, then with
  // x = steps into the decay / its length: linear 1 - x, cosine (1 + cos(pi x)) / 2, sqrt 1 - sqrt(x), scaled to
  // run from 1 to min_lr_factor; min_lr_factor after total_steps. A decay_ratio of 0 never decays.
  double at(std::int64_t step) const;
};

}  // namespace shale

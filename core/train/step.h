// One optimizer step over the whole world.
#pragma once

#include <cstdint>

#include "core/train/run.h"

namespace shale {

// What a step did; equal on all ranks but for seconds.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over all target tokens of the global batch
  double grad_norm = 0;   // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // target tokens of the global batch
  bool skipped = false;     // gradients were not finite and the weights did not change
  int stop_signal = 0;      // some rank was asked to stop: the largest signal number
  double seconds = 0;
};

// Error{numeric} when loss or gradients are not finite and the run is not to skip such steps.
StepReport train_step(Run&);

}  // namespace shale

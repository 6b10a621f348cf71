// The run from its first step to its last.
#pragma once

#include "core/train/run.h"

namespace shale {

// Prepares, resumes if asked, trains, validates and saves. Returns the exit code: 0, or 128 + n after a signal.
int train(const Surroundings&);

}  // namespace shale

// The loss on held-out data.
#pragma once

#include "core/train/run.h"

namespace shale {

// Mean loss over the first validation.steps global batches of the validation data, always the same ones, whatever the
// number of ranks. All ranks take part;
// weights, gradients and the training cursor are untouched.
double validation_loss(Run&);

}  // namespace shale

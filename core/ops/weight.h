// A parameter as an operator sees it. Operators write dW into `grad` themselves and report no gradient to autograd, so
// accumulation and tied weights need nothing special.
#pragma once

#include <ATen/core/Tensor.h>

namespace shale {

// One per use of a parameter, made once over slot memory; value and grad never move. Not owned by the operators, and
// it must outlive every graph made with it.
struct Weight {
  at::Tensor value;  // [shape], compute dtype; requires_grad unless frozen
  at::Tensor grad;   // [shape], gradient dtype (may be wider than value's); undefined when frozen
  bool frozen = false;
  // Shared by all uses of the parameter. true: nothing was added in this backward yet, so the first writer overwrites
  // `grad` and clears the flag; later writers add.
  bool* fresh = nullptr;
};

}  // namespace shale

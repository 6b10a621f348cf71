// Gram-Schmidt of the columns of a matrix, in place.
#pragma once

#include <ATen/core/Tensor.h>

namespace shale {

// a: [n, r] of a float type. Columns become orthogonal and of length 1; one that depends on earlier ones, up to the
// rounding of its dtype, becomes zero. A column with NaN or infinity stays without a finite meaning, and so do later
// ones. Computed in fp64; reads nothing back from the device.
void orthogonalise(const at::Tensor& a);

}  // namespace shale

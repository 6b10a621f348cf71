// shale_tensor and at::Tensor: views of the same memory, in both directions.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/loader/abi.h"
#include "core/loader/status.h"

namespace shale {

enum class Use { read, write };

// What a plugin handed to a service, as a contiguous tensor over its memory. A status naming `argument` when it is not
// a row-major tensor of a known dtype on `device`, or may not be written. null = fine.
shale_status* tensor_from_c(const shale_tensor*, const char* argument, Use, at::Device device, at::Tensor& out);

// Contiguous only. The memory is the tensor's: valid as long as that is.
shale_tensor tensor_to_c(const at::Tensor&, Use);

at::Tensor flat_view(const at::Tensor&);                 // all elements in one dimension; contiguous only
at::Tensor byte_view(const at::Tensor&);                 // its bytes; contiguous only
bool overlaps(const at::Tensor&, const at::Tensor&);     // both contiguous
bool same_memory(const at::Tensor&, const at::Tensor&);  // begin and bytes

}  // namespace shale

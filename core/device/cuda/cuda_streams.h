// The streams of a CUDA device.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "core/device/streams.h"

namespace shale {

// Compute is the calling thread's current stream; the others come from the pool of urgent ones, so that a gather does
// not queue behind the kernels it is to overlap with.
std::unique_ptr<Streams> cuda_streams(c10::DeviceIndex);

}  // namespace shale

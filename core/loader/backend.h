// The library with the CUDA and NCCL half of device/ and comm/, opened only when a configuration asks for it.
#pragma once

#include <memory>
#include <string>

#include "core/device/device.h"

namespace shale {

// The device named in the configuration ("cpu", "cuda") for this rank. library_folder: where libshale_cuda.so lies.
// Error{config} with the loader's own text when it is not there, does not fit this build or no GPU is visible.
std::unique_ptr<ComputeDevice> open_device(const std::string& device, int local_rank,
                                           const std::string& library_folder);

}  // namespace shale

// The library with the CUDA and NCCL half of device/ and comm/, opened only when a configuration asks for it.
#pragma once

#include <memory>
#include <string>

#include "core/device/cuda_api.h"
#include "core/device/device.h"

namespace shale {

// The functions of libshale_cuda.so; see core/device/cuda_api.h.
struct CudaLibrary {
  CudaDeviceFn device = nullptr;
  CudaGroupFn group = nullptr;
};

// library_folder: where libshale_cuda.so lies. Opened once, never closed. Error{config} with the system loader's own
// text when it is not there or cannot be loaded, or when it is of another build.
CudaLibrary open_cuda_library(const std::string& library_folder);

// The device named in the configuration ("cpu", "cuda") for this rank; "cuda" opens the library. Error{config} also
// when no GPU is visible.
std::unique_ptr<ComputeDevice> open_device(const std::string& device, int local_rank,
                                           const std::string& library_folder);

}  // namespace shale

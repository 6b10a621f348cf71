#include "core/loader/backend.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/loader/dynamic_library.h"

namespace shale {

CudaLibrary open_cuda_library(const std::string& library_folder) {
  const std::string path = (std::filesystem::path(library_folder) / kCudaLibrary).string();
  if (!std::filesystem::exists(path))
    fail(Code::config, "training.device is \"cuda\", but ", path, " is not there: this shale was built without CUDA; ",
         "build it with a LibTorch for CUDA, or set training.device = \"cpu\"");
  const DynamicLibrary library(std::filesystem::canonical(path).string(),
                               "install the NVIDIA driver and the CUDA libraries of this LibTorch, or set "
                               "training.device = \"cpu\"");
  auto* version = library.find<std::remove_pointer_t<CudaApiFn>>("shale_cuda_api");
  const CudaLibrary found{library.find<std::remove_pointer_t<CudaDeviceFn>>("shale_cuda_device"),
                          library.find<std::remove_pointer_t<CudaGroupFn>>("shale_cuda_group")};
  if (version == nullptr || found.device == nullptr || found.group == nullptr || version() != kCudaApi)
    fail(Code::config, path, ": is of another build than this program: install both together");
  return found;
}

std::unique_ptr<ComputeDevice> open_device(const std::string& device, int local_rank,
                                           const std::string& library_folder) {
  if (device == "cpu") return cpu_device();
  check(device == "cuda", "there is no device \"", device, "\"");
  return std::unique_ptr<ComputeDevice>(open_cuda_library(library_folder).device(local_rank));
}

}  // namespace shale

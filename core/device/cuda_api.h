// What libshale_cuda.so exports. The library is built of core/device/cuda and core/comm/nccl, is opened by loader/ when
// a config asks for a GPU, and throws shale::Error like the rest of the core (binary and library are of one build).
#pragma once

#include <cstdint>
#include <string>

namespace c10d {
class Store;
}

namespace shale {

class ComputeDevice;
class Group;

inline constexpr std::uint32_t kCudaApi = 2;  // changes with this file, device.h, streams.h and comm/group.h
inline constexpr const char* kCudaLibrary = "libshale_cuda.so";

// One group to be made over NCCL.
struct CudaGroup {
  c10d::Store* store = nullptr;  // where its members meet, under a prefix of its own; must outlive the group
  int rank = 0, size = 1;        // my position in the group
  std::string name;
  double timeout = 600;  // seconds for any one operation
};

// Types of the exported functions, for the caller of dlsym.
using CudaApiFn = std::uint32_t (*)();
using CudaDeviceFn = ComputeDevice* (*)(int local_rank);
using CudaGroupFn = Group* (*)(const CudaGroup&);

}  // namespace shale

extern "C" {
std::uint32_t shale_cuda_api();  // kCudaApi of the library
// GPU number local_rank, made the current one of the calling thread. Error{config} when there is no such GPU. The
// caller owns the result.
shale::ComputeDevice* shale_cuda_device(int local_rank);
// After shale_cuda_device, on the same thread. The caller owns the result.
shale::Group* shale_cuda_group(const shale::CudaGroup& group);
}

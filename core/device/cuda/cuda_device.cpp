#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "core/base/error.h"
#include "core/device/cuda/cuda_streams.h"
#include "core/device/cuda_api.h"
#include "core/device/device.h"

namespace shale {
namespace {

class CudaDevice final : public ComputeDevice {
 public:
  explicit CudaDevice(at::DeviceIndex index) : index_(index), properties_(*at::cuda::getDeviceProperties(index)) {}

  at::Device torch() const override { return {at::kCUDA, index_}; }
  std::string name() const override { return str("cuda:", static_cast<int>(index_), " (", properties_.name, ")"); }
  std::uint64_t bytes() const override { return properties_.totalGlobalMem; }
  std::uint32_t arch() const override { return static_cast<std::uint32_t>(10 * properties_.major + properties_.minor); }
  void synchronize() override { c10::cuda::device_synchronize(); }
  std::int64_t allocated() const override { return tensor_bytes().current; }
  std::int64_t peak_allocated() const override { return tensor_bytes().peak; }
  void reset_peak() override { c10::cuda::CUDACachingAllocator::resetPeakStats(index_); }
  Streams* streams() override { return streams_.get(); }

 private:
  c10::CachingAllocator::Stat tensor_bytes() const {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index_).allocated_bytes[0];  // 0: over all pools
  }

  at::DeviceIndex index_;
  const cudaDeviceProp& properties_;
  std::unique_ptr<Streams> streams_ = cuda_streams(index_);
};

}  // namespace
}  // namespace shale

std::uint32_t shale_cuda_api() { return shale::kCudaApi; }

shale::ComputeDevice* shale_cuda_device(int local_rank) {
  const int count = c10::cuda::device_count();
  if (count == 0)
    shale::fail(shale::Code::config,
                "no GPU is visible to this process; check the driver with nvidia-smi and "
                "CUDA_VISIBLE_DEVICES, or set training.device = \"cpu\"");
  if (local_rank < 0 || local_rank >= count)
    shale::fail(shale::Code::config, "local rank ", local_rank, " has no GPU of its own: ", count,
                " visible; start at most one rank per GPU (--nproc ", count, ")");
  at::globalContext().lazyInitDevice(at::kCUDA);
  const auto index = static_cast<at::DeviceIndex>(local_rank);
  c10::cuda::set_device(index);
  return new shale::CudaDevice(index);
}

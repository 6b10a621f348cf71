// The CUDA library must link, open in a process that knows nothing of CUDA, and say clearly that there is no GPU.
#include <dlfcn.h>

#include <memory>
#include <string>

#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/device/cuda_api.h"
#include "core/device/device.h"

namespace shale {
namespace {

// First of all: a run has used tensors of the CPU before it opens the library, and what ATen remembers from then must
// not hide the CUDA half.
TEST(late_cuda_library, is_known_to_aten) {
  EXPECT_EQ(at::ones({3}, at::kDouble).sum().item<double>(), 3);
  EXPECT_FALSE(c10::impl::hasDeviceGuardImpl(at::kCUDA));
  ASSERT_TRUE(dlopen(SHALE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL)) << dlerror();
  EXPECT_TRUE(at::globalContext().hasCUDART());
  EXPECT_TRUE(c10::impl::hasDeviceGuardImpl(at::kCUDA));
}

class cuda_library : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(SHALE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library_) << dlerror();
  }
  template <class Function>
  Function symbol(const char* name) {
    const auto found = reinterpret_cast<Function>(dlsym(library_, name));
    EXPECT_TRUE(found) << name;
    return found;
  }
  void* library_ = nullptr;  // never closed: LibTorch's CUDA half cannot be unloaded
};

TEST_F(cuda_library, is_of_this_build) { EXPECT_EQ(symbol<CudaApiFn>("shale_cuda_api")(), kCudaApi); }

TEST_F(cuda_library, gives_a_device_or_says_there_is_none) {
  const auto open = symbol<CudaDeviceFn>("shale_cuda_device");
  try {
    const std::unique_ptr<ComputeDevice> device(open(0));
    EXPECT_TRUE(device->torch().is_cuda());
    EXPECT_GE(device->arch(), 50u);
    EXPECT_GT(device->bytes(), 0u);
    device->synchronize();
    EXPECT_EQ(device->allocated(), 0);
    ASSERT_TRUE(device->streams());
    EXPECT_EQ(device->streams()->current(), Stream::compute);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::config);
    EXPECT_NE(std::string(e.what()).find("no GPU is visible"), std::string::npos) << e.what();
  }
}

TEST_F(cuda_library, a_rank_without_a_gpu_is_named) {
  try {
    symbol<CudaDeviceFn>("shale_cuda_device")(12345);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::config);
  }
}

TEST_F(cuda_library, a_group_needs_a_store) {
  EXPECT_THROW(symbol<CudaGroupFn>("shale_cuda_group")(CudaGroup{}), Error);
}

}  // namespace
}  // namespace shale

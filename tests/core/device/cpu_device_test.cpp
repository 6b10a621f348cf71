#include "core/device/device.h"

#include <unistd.h>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "core/device/cpu_pool.h"

namespace shale {
namespace {

TEST(cpu_device, describes_this_machine) {
  const auto device = cpu_device();
  EXPECT_TRUE(device->torch().is_cpu());
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_EQ(device->arch(), 0u);
  const auto machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  EXPECT_GT(device->bytes(), 0u);
  EXPECT_LE(device->bytes(), machine);
  device->synchronize();
}

TEST(cpu_device, counts_tensors) {
  install_cpu_pool();
  const auto device = cpu_device();
  device->reset_peak();
  const auto before = device->allocated();
  { const auto a = at::empty({1 << 20}, at::kFloat); }
  EXPECT_EQ(device->allocated(), before);
  EXPECT_EQ(device->peak_allocated(), before + (4 << 20));
}

}  // namespace
}  // namespace shale

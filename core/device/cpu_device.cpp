#include <unistd.h>

#include <algorithm>

#include "core/device/cgroup.h"
#include "core/device/cpu_pool.h"
#include "core/device/device.h"

namespace shale {
namespace {

std::uint64_t usable_bytes() {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  return std::min(pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)), cgroup_limits().bytes);
}

class CpuDevice final : public ComputeDevice {
 public:
  at::Device torch() const override { return at::Device(at::kCPU); }
  std::string name() const override { return "cpu"; }
  std::uint64_t bytes() const override { return bytes_; }
  std::uint32_t arch() const override { return 0; }
  void synchronize() override {}  // operators return when they are done
  std::int64_t allocated() const override { return cpu_pool_counts().allocated; }
  std::int64_t peak_allocated() const override { return cpu_pool_counts().peak; }
  void reset_peak() override { reset_cpu_pool_peak(); }

 private:
  std::uint64_t bytes_ = usable_bytes();
};

}  // namespace

std::unique_ptr<ComputeDevice> cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace shale

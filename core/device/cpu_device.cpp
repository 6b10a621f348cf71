#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/device/cpu_pool.h"
#include "core/device/device.h"

namespace shale {
namespace {

// The limit in a cgroup's file, or `otherwise` when there is no file or no limit ("max").
std::uint64_t limit_in(const std::string& file, std::uint64_t otherwise) {
  std::uint64_t limit = 0;
  std::ifstream in(file);
  return in >> limit ? std::min(limit, otherwise) : otherwise;
}

// The machine's memory, or less where a cgroup of this process (version 2 or 1) or one above it allows less.
std::uint64_t usable_bytes() {
  auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const bool unified = line.starts_with("0::"), memory = line.find(":memory:") != std::string::npos;
    if (!unified && !memory) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const std::string name = unified ? "/memory.max" : "/memory.limit_in_bytes";
    for (auto path = line.substr(second + 1); !path.empty(); path.resize(path.rfind('/')))
      if (path.front() == '/')
        bytes = limit_in(root + path + name, bytes);
      else
        break;
    bytes = limit_in(root + name, bytes);
  }
  return bytes;
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

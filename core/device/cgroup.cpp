#include "core/device/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace shale {
namespace {

template <class T>
bool read(const std::string& file, T& value) {
  std::ifstream in(file);
  return static_cast<bool>(in >> value);
}

void take_bytes(const std::string& file, CgroupLimits& limits) {
  std::uint64_t bytes = 0;
  if (read(file, bytes)) limits.bytes = std::min(limits.bytes, bytes);  // "max" is no number
}

void take_share(double quota, double period, CgroupLimits& limits) {
  if (quota > 0 && period > 0) limits.cores = std::min(limits.cores, quota / period);
}

// One group of version 2.
void take_unified(const std::string& group, CgroupLimits& limits) {
  take_bytes(group + "/memory.max", limits);
  std::ifstream in(group + "/cpu.max");
  double quota = 0, period = 0;
  if (in >> quota >> period) take_share(quota, period, limits);
}

void take_cpu(const std::string& group, CgroupLimits& limits) {
  double quota = 0, period = 0;
  if (read(group + "/cpu.cfs_quota_us", quota) && read(group + "/cpu.cfs_period_us", period))
    take_share(quota, period, limits);
}

// A group and those above it, up to where they are mounted: in a container the path may name what is not seen there.
template <class Take>
void up(std::string path, const std::string& root, const Take& take) {
  for (; !path.empty() && path.front() == '/'; path.resize(path.rfind('/'))) take(root + path);
  take(root);
}

bool has(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& membership, const std::string& root) {
  CgroupLimits limits;
  std::ifstream groups(membership);
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) up(path, root, [&](const std::string& g) { take_unified(g, limits); });
    if (has(controllers, "memory"))
      up(path, root + "/memory", [&](const std::string& g) { take_bytes(g + "/memory.limit_in_bytes", limits); });
    if (has(controllers, "cpu")) up(path, root + "/" + controllers, [&](const std::string& g) { take_cpu(g, limits); });
  }
  return limits;
}

int usable_cores() {
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  return std::max(1, static_cast<int>(std::ceil(std::min(cores, cgroup_limits().cores))));
}

}  // namespace shale

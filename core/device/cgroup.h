// What the control groups of this process leave it of the machine.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace shale {

struct CgroupLimits {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();  // of memory
  double cores = std::numeric_limits<double>::infinity();           // processor time per time
};

// The tightest of the process's groups (version 2 or 1) and those above them; no limit where there is none or the files
// say something else. membership: a file like /proc/self/cgroup; root: where the group file systems are mounted.
CgroupLimits cgroup_limits(const std::string& membership = "/proc/self/cgroup",
                           const std::string& root = "/sys/fs/cgroup");

// Processors this process may use, at least 1: those it may run on, or the time its control groups allow.
int usable_cores();

}  // namespace shale

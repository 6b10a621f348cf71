#include "core/device/cgroup.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace shale {
namespace {

namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  Cgroup() {
    std::string name = testing::TempDir() + "cgroup-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Cgroup() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(root_ + "/" + file).parent_path());
    std::ofstream(root_ + "/" + file) << text;
  }
  CgroupLimits limits() { return cgroup_limits(root_ + "/membership", root_); }

  std::string root_;
};

TEST_F(Cgroup, TakesTheTightestOfVersion2) {
  write("membership", "0::/pod/box\n");
  write("pod/box/memory.max", "max\n"), write("pod/box/cpu.max", "max 100000\n");
  write("pod/memory.max", "1000000\n"), write("pod/cpu.max", "250000 100000\n");
  write("cpu.max", "800000 100000\n");
  EXPECT_EQ(limits().bytes, 1000000u);
  EXPECT_EQ(limits().cores, 2.5);
}

TEST_F(Cgroup, ReadsVersion1) {
  write("membership", "7:cpu,cpuacct:/box\n3:memory:/box\n");
  write("memory/box/memory.limit_in_bytes", "5000\n");
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n"), write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/cpu.cfs_quota_us", "300000\n"), write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().bytes, 5000u);
  EXPECT_EQ(limits().cores, 3);
}

TEST_F(Cgroup, WhatItCannotReadIsNoLimit) {
  EXPECT_EQ(limits().cores, CgroupLimits{}.cores);
  write("membership", "nonsense\n0::\n0::/a/../b\n1:cpu\n");
  write("cpu.max", "lots of it\n"), write("memory.max", "-\n");
  EXPECT_EQ(limits().cores, CgroupLimits{}.cores);
  EXPECT_EQ(limits().bytes, CgroupLimits{}.bytes);
}

TEST(UsableCores, IsAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace shale

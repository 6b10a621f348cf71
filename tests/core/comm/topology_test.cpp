#include "core/comm/topology.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

TEST(Topology, Partitions) {
  EXPECT_EQ(self_partition(3), (Partition{0, 1, 2}));
  EXPECT_EQ(world_partition(3), (Partition{0, 0, 0}));
  EXPECT_EQ(members({5, 1, 5, 1}, 2), (std::vector<int>{0, 2}));
  EXPECT_EQ(members({5, 1, 5, 1}, 3), (std::vector<int>{1, 3}));
  EXPECT_EQ(members(self_partition(4), 2), std::vector<int>{2});
}

TEST(Topology, MembersOfARankOutsideIsABug) {
  EXPECT_THROW(members({0, 0}, 2), Error);
  EXPECT_THROW(members({0, 0}, -1), Error);
}

}  // namespace
}  // namespace shale

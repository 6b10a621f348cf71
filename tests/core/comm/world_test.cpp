#include "core/comm/world.h"

#include "core/base/error.h"
#include "tests/core/comm/ranks.h"

namespace shale {
namespace {

TEST(World, OfOneNeedsNoNetwork) {
  const auto world = World::join(Launch{});
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->topology().node_of_rank, std::vector<std::uint32_t>{0});
  world->store().set("a", "b");
  EXPECT_EQ(world->store().get("a"), "b");
  EXPECT_EQ(world->store().add("n", 2) + world->store().add("n", 3), 7);
  EXPECT_THROW(world->store().get("never set"), Error);
  EXPECT_EQ(world->group(self_partition(1), "x")->name(), "x");
}

TEST(World, RefusesAnImpossibleRank) {
  Launch launch;
  launch.world = 2;
  launch.rank = 2;
  launch.port = 29500;
  EXPECT_THROW(World::join(launch), Error);
  launch.rank = 0;
  launch.port = 70000;
  EXPECT_THROW(World::join(launch), Error);
}

TEST(World, KnowsItsRanksAndShareAStore) {
  on_ranks(3, [](World& world) {
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.rank(), world.local_rank());
    EXPECT_EQ(world.topology().world, 3);
    EXPECT_EQ(world.topology().node_of_rank, (std::vector<std::uint32_t>{0, 0, 0}));
    world.store().set(str("from ", world.rank()), str("rank ", world.rank()));
    for (int r = 0; r < 3; ++r) EXPECT_EQ(world.store().get(str("from ", r)), str("rank ", r));
    world.store().add("sum", world.rank() + 1);
    world.everyone().barrier();
    EXPECT_EQ(world.store().add("sum", 0), 6);
  });
}

TEST(World, AKeyThatNobodySetsIsAnErrorAtTheStartUpLimit) {
  Launch launch = local_launch(2);
  launch.init_timeout = 1;
  const Outcome outcome = run_ranks(launch, [](World& world) {
    if (world.rank() == 0) world.store().get("never");
    world.everyone().barrier();
  });
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.lines,
            std::vector<std::string>{"[rank 0] E-dist: rank 0: no rank set \"never\" in the job's store within 1 s"});
}

TEST(World, GroupsFollowThePartition) {
  on_ranks(4, [](World& world) {
    const Partition halves{0, 1, 0, 1}, lone{0, 0, 0, 7};
    const auto half = world.group(halves, "half"), most = world.group(lone, "most"),
               again = world.group(halves, "half");
    const int r = world.rank();
    EXPECT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), r / 2);
    EXPECT_EQ(most->size(), r == 3 ? 1 : 3);
    EXPECT_EQ(all_reduce(*half, r, Reduction::sum), r % 2 == 0 ? 2 : 4);
    EXPECT_EQ(all_reduce(*again, r, Reduction::max), r % 2 == 0 ? 2 : 3);
    EXPECT_EQ(all_reduce(*most, r, Reduction::sum), 3);
    EXPECT_EQ(all_gather_text(*most, str(r)).size(), r == 3 ? 1U : 3U);
  });
}

TEST(World, MayLeaveRightAfterJoining) {
  for (int i = 0; i < 10; ++i) on_ranks(4, [](World&) {});
}

}  // namespace
}  // namespace shale

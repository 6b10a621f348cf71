// A group whose peer is stuck, dead or failing: every wait ends, says what it waited for, and the first cause wins.
#include <csignal>

#include <ATen/ops/zeros.h>

#include "core/base/error.h"
#include "core/comm/group.h"
#include "tests/core/comm/ranks.h"

namespace shale {
namespace {

using Call = std::function<void(Group&)>;

struct Named {
  const char* name;
  Call call;
};

// One call of each operation, as rank 0 of 2 makes it.
std::vector<Named> every_operation() {
  const auto x = [] { return at::zeros({64}); };
  return {{"all_gather", [x](Group& g) { g.all_gather(x())->wait(); }},
          {"reduce_scatter", [x](Group& g) { g.reduce_scatter(at::zeros({32}), x(), x())->wait(); }},
          {"all_reduce", [x](Group& g) { g.all_reduce(x(), Reduction::sum)->wait(); }},
          {"broadcast", [x](Group& g) { g.broadcast(x(), 1)->wait(); }},
          {"barrier", [](Group& g) { g.barrier(); }},
          {"all_to_all", [x](Group& g) { g.all_to_all(x(), x())->wait(); }},
          {"send", [x](Group& g) { g.send(x(), 1, 0)->wait(); }},
          {"recv", [x](Group& g) { g.recv(x(), 1, 0)->wait(); }}};
}

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::config, "no error");
}

TEST(GroupFailure, APeerThatNeverCallsEndsInAnErrorAtTheLimit) {
  Launch launch = local_launch(2);
  launch.timeout = 0.3;
  const Outcome outcome = run_ranks(launch, [](World& world) {
    for (const Named& operation : every_operation()) {
      const auto group = world.group(world_partition(2), "shard");
      if (world.rank() == 0) {
        const Error error = error_of([&] { operation.call(*group); });
        EXPECT_EQ(error.code(), Code::dist);
        EXPECT_FALSE(error.secondary()) << error.what();
        const std::string start = str("rank 0: ", operation.name, " in group \"shard\" did not finish in 0.3 s");
        EXPECT_TRUE(std::string(error.what()).starts_with(start)) << error.what();
        world.store().set(operation.name, "over");
      } else {
        EXPECT_EQ(world.store().get(operation.name), "over");
      }
    }
  });
  EXPECT_EQ(outcome.code, 0);
}

TEST(GroupFailure, AClosedGroupFailsAtOnceAndAsAFollowUp) {
  Launch launch = local_launch(2);
  launch.timeout = 0.3;
  const Outcome outcome = run_ranks(launch, [](World& world) {
    const auto group = world.group(world_partition(2), "shard");
    if (world.rank() == 1) {
      world.store().get("over");
    } else {
      EXPECT_EQ(error_of([&] { group->barrier(); }).code(), Code::dist);
      for (const Named& operation : every_operation()) {
        const Error error = error_of([&] { operation.call(*group); });
        EXPECT_TRUE(error.secondary()) << error.what();
        EXPECT_NE(std::string(error.what()).find("closed the group"), std::string::npos) << error.what();
      }
      world.store().set("over", "");
    }
  });
  EXPECT_EQ(outcome.code, 0);
}

TEST(GroupFailure, AKilledPeerIsNoticedAtOnceInEveryOperation) {
  for (const Named& operation : every_operation()) {
    const Outcome outcome = run_ranks(local_launch(2), [&](World& world) {
      world.everyone().barrier();
      if (world.rank() == 1) raise(SIGKILL);
      const Error error = error_of([&] { operation.call(world.everyone()); });
      EXPECT_TRUE(error.secondary()) << error.what();
      EXPECT_EQ(error.code(), Code::dist);
      EXPECT_NE(std::string(error.what()).find(str("rank 0: ", operation.name)), std::string::npos) << error.what();
      throw error;
    });
    EXPECT_EQ(outcome.code, 128 + SIGKILL) << operation.name;
    EXPECT_EQ(outcome.lines, std::vector<std::string>{"rank 1 was killed by signal 9 (SIGKILL; out of memory?)"});
  }
}

TEST(GroupFailure, AnErrorWithTransfersUnderWayEndsAllRanksAndIsTheOnlyOneReported) {
  const Outcome outcome = run_ranks(local_launch(3), [](World& world) {
    Group& group = world.everyone();
    const at::Tensor full = at::zeros({3 * 100000}), other = at::zeros({10});
    group.barrier();
    if (world.rank() == 1) {
      const auto gather = group.all_gather(full);  // nobody joins in: its end must not be waited for
      const auto sum = group.all_reduce(other, Reduction::sum);
      fail(Code::io, "disk full");
    }
    group.recv(other, 1, 5)->wait();
  });
  EXPECT_EQ(outcome.code, 6);
  EXPECT_EQ(outcome.lines, std::vector<std::string>{"[rank 1] E-io: disk full"});
}

TEST(GroupFailure, AStuckRankIsReportedByThoseWhoWait) {
  Launch launch = local_launch(2);
  launch.timeout = 0.3;
  const Outcome outcome = run_ranks(launch, [](World& world) {
    if (world.rank() == 1) pause();
    world.everyone().barrier();
  });
  EXPECT_EQ(outcome.code, 5);
  ASSERT_EQ(outcome.lines.size(), 1U);
  EXPECT_EQ(outcome.lines[0].find("[rank 0] E-dist: rank 0: barrier in group \"world\" did not finish in 0.3 s"), 0U);
}

}  // namespace
}  // namespace shale

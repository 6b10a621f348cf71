// Ranks that were started by somebody else, well and badly: what World::join says, and that it always says it in time.
#include <numeric>

#include "core/base/error.h"
#include "core/comm/net.h"
#include "core/comm/world.h"
#include "tests/core/comm/ranks.h"
#include "tests/ranks/process.h"

namespace shale {
namespace {

int free_port() { return port_of(listen_at("127.0.0.1", 0)); }

Launch rank_of(int rank, int world, int port) {
  Launch launch;
  launch.rank = launch.local_rank = rank;
  launch.world = launch.local_world = world;
  launch.port = port;
  launch.init_timeout = launch.timeout = 30;
  launch.source = "RANK";
  return launch;
}

int join_and_sum(const Launch& launch) {
  const auto world = World::join(launch);
  const double sum = all_reduce(world->everyone(), world->rank(), Reduction::sum);
  return sum == launch.world * (launch.world - 1) / 2 ? 0 : 1;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Startup, RanksStartedByHandMeet) {
  const HardLimit limit(60);
  const int port = free_port();
  Process second([&] { return join_and_sum(rank_of(1, 3, port)); });
  Process third([&] { return join_and_sum(rank_of(2, 3, port)); });
  usleep(100000);  // the others wait for the server
  Process first([&] { return join_and_sum(rank_of(0, 3, port)); });
  for (Process* process : {&first, &second, &third}) EXPECT_EQ(process->join(), 0) << process->error();
}

TEST(Startup, RanksMeetUnderANameAndThroughAnInterface) {
  const HardLimit limit(60);
  const int port = free_port();
  const auto start = [&](int rank) {
    Launch launch = rank_of(rank, 2, port);
    launch.master = "localhost";
    launch.interface_name = "lo";
    launch.prefix = "attempt 1";
    return join_and_sum(launch);
  };
  Process first([&] { return start(0); }), second([&] { return start(1); });
  EXPECT_EQ(first.join(), 0) << first.error();
  EXPECT_EQ(second.join(), 0) << second.error();
}

TEST(Startup, C16OnlySomeJoin) {
  const HardLimit limit(30);
  const int port = free_port();
  const auto start = [&](int rank) {
    Launch launch = rank_of(rank, 4, port);
    launch.init_timeout = 1;
    return join_and_sum(launch);
  };
  Process first([&] { return start(0); }), third([&] { return start(2); });
  EXPECT_EQ(first.join(), 5);
  EXPECT_TRUE(has(first.error(),
                  str("E-dist: start-up: 2 of 4 ranks joined at 127.0.0.1:", port, " within 1 s; missing: rank 1, 3")))
      << first.error();
  EXPECT_EQ(third.join(), 5);
  EXPECT_TRUE(third.secondary() || has(third.error(), "missing: rank 1, 3")) << third.error();
}

TEST(Startup, C16OnlyRankZeroOfTwo) {
  const HardLimit limit(30);
  const int port = free_port();
  Launch launch = rank_of(0, 2, port);
  launch.init_timeout = 1;
  Process first([&] { return join_and_sum(launch); });
  EXPECT_EQ(first.join(), 5);
  EXPECT_TRUE(has(first.error(), str("1 of 2 ranks joined at 127.0.0.1:", port, " within 1 s; missing: rank 1")))
      << first.error();
}

TEST(Startup, C16RankZeroNeverComes) {
  const HardLimit limit(30);
  Launch launch = rank_of(1, 2, free_port());
  launch.init_timeout = 0.5;
  Process second([&] { return join_and_sum(launch); });
  EXPECT_EQ(second.join(), 5);
  EXPECT_TRUE(
      has(second.error(), str("rank 1 of 2 found nobody at 127.0.0.1:", launch.port, " within 0.5 s; missing: rank 0")))
      << second.error();
}

TEST(Startup, AStoppedRankZeroIsNotWaitedForForEver) {
  const HardLimit limit(40);
  const int port = free_port();
  const auto start = [&](int rank) {
    Launch launch = rank_of(rank, 3, port);
    launch.init_timeout = 3;
    return join_and_sum(launch);
  };
  Process first([&] { return start(0); }), second([&] { return start(1); });
  usleep(1500000);  // both wait for rank 2 by now
  kill(first.pid(), SIGSTOP);
  EXPECT_EQ(second.join(), 5);
  EXPECT_FALSE(second.secondary());
  EXPECT_TRUE(has(second.error(), "does not answer")) << second.error();
}

TEST(Startup, C16AnUnknownInterface) {
  const HardLimit limit(30);
  const int port = free_port();
  const auto start = [&](int rank) {
    Launch launch = rank_of(rank, 2, port);
    launch.interface_name = "ib_none";
    return join_and_sum(launch);
  };
  Process first([&] { return start(0); }), second([&] { return start(1); });
  for (Process* process : {&first, &second}) {
    EXPECT_EQ(process->join(), 5);
    EXPECT_TRUE(has(process->error(), "E-dist: start-up: network interface \"ib_none\"")) << process->error();
  }
}

TEST(Startup, C16TwoProcessesWithOneRankFindEachOtherWithoutRankZero) {
  const HardLimit limit(20);  // less than the start-up limit
  const int port = free_port();
  Process one([&] { return join_and_sum(rank_of(1, 2, port)); }),
      other([&] { return join_and_sum(rank_of(1, 2, port)); });
  for (Process* process : {&one, &other}) {
    EXPECT_EQ(process->join(), 5);
    EXPECT_TRUE(has(process->error(), "duplicate rank 1: process ")) << process->error();
  }
}

TEST(Startup, C16ADuplicateOfAnotherHostIsFoundInTheStore) {
  const HardLimit limit(20);
  const int port = free_port();
  const auto start = [&](int rank, const std::string& master) {
    Launch launch = rank_of(rank, 3, port);
    launch.master = master;  // another spelling hides it from the search on this host
    return join_and_sum(launch);
  };
  Process first([&] { return start(0, "127.0.0.1"); }), second([&] { return start(1, "127.0.0.1"); });
  Process again([&] { return start(1, "localhost"); });
  for (Process* process : {&first, &second, &again}) {
    EXPECT_EQ(process->join(), 5);
    EXPECT_TRUE(process->secondary() || has(process->error(), "duplicate rank 1: process ")) << process->error();
  }
  EXPECT_FALSE(first.secondary()) << first.error();
}

TEST(Startup, C2APortHeldByAStrangerIsNamedByAllRanks) {
  const HardLimit limit(30);
  const OwnedFd stranger = listen_at("127.0.0.1", 0);  // accepts and never answers
  const int port = port_of(stranger);
  const auto start = [&](int rank) {
    Launch launch = rank_of(rank, 2, port);
    launch.init_timeout = 2;
    return join_and_sum(launch);
  };
  Process first([&] { return start(0); }), second([&] { return start(1); });
  EXPECT_EQ(first.join(), 5);
  EXPECT_TRUE(has(first.error(), str("port ", port, " of 127.0.0.1 is taken"))) << first.error();
  EXPECT_EQ(second.join(), 5);
  EXPECT_TRUE(has(second.error(), str("127.0.0.1:", port, " does not answer as the job's store"))) << second.error();
}

TEST(Startup, C2TwoRunsWithFreePortsAtOnce) {
  const HardLimit limit(60);
  const auto run = [] {
    for (int i = 0; i < 5; ++i) {
      const int code = launch_local(local_launch(2), join_and_sum);
      if (code != 0) return code;
    }
    return 0;
  };
  Process one(run), other(run);
  EXPECT_EQ(one.join(), 0) << one.error();
  EXPECT_EQ(other.join(), 0) << other.error();
}

TEST(Startup, UnderAnAgentThatServesTheStoreEveryRankIsAClient) {
  const HardLimit limit(60);
  const int port = free_port();
  // The agent's part: rank 0 of a job of its own, which serves a store while it waits for a rank that never comes.
  Launch agent_launch = rank_of(0, 2, port);
  agent_launch.prefix = "agent";
  Process agent([&] { return join_and_sum(agent_launch); });
  for (int restart = 0; restart < 2; ++restart) {
    const auto start = [&](int rank) {
      Launch launch = rank_of(rank, 2, port);
      launch.agent_store = true;
      launch.prefix = str("restart ", restart);
      return join_and_sum(launch);
    };
    Process first([&] { return start(0); }), second([&] { return start(1); });
    EXPECT_EQ(first.join(), 0) << first.error();
    EXPECT_EQ(second.join(), 0) << second.error();
  }
}

TEST(Startup, AnAgentThatIsNotThereIsNamed) {
  const HardLimit limit(30);
  Launch launch = rank_of(0, 2, free_port());
  launch.agent_store = true;
  launch.init_timeout = 0.5;
  Process first([&] { return join_and_sum(launch); });
  EXPECT_EQ(first.join(), 5);
  EXPECT_TRUE(has(first.error(), "missing: the launcher's store")) << first.error();
}

}  // namespace
}  // namespace shale

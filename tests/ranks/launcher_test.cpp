// The launcher with ranks that end in every way there is.
#include "core/comm/launcher.h"

#include <sys/prctl.h>

#include <atomic>
#include <fstream>

#include "core/base/error.h"
#include "tests/core/comm/ranks.h"
#include "tests/ranks/process.h"

namespace shale {
namespace {

using Lines = std::vector<std::string>;

LauncherOptions impatient() {
  LauncherOptions options;
  options.grace = options.kill_after = 0.1;
  return options;
}

// Rank 1 of 3 does what is asked, the others wait for ever.
Outcome with_bad_rank(const std::function<int()>& bad) {
  const HardLimit limit(30);
  return run_launch(
      local_launch(3), [&](const Launch& launch) { return launch.rank == 1 ? bad() : pause(); }, impatient());
}

std::atomic<int> signals_seen = 0;
void count_signal(int) { ++signals_seen; }

void wait_for_stop(int pid) {
  std::string line;
  while (line.find(") T") == std::string::npos) {
    std::getline(std::ifstream(str("/proc/", pid, "/stat")), line);
    usleep(1000);
  }
}

// Tells that it is ready and waits for a signal, which cannot come too early: it is blocked until then.
void wait_for_signal(int signal, const Channel& ready) {
  sigset_t one, none;
  sigemptyset(&one);
  sigemptyset(&none);
  sigaddset(&one, signal);
  sigprocmask(SIG_BLOCK, &one, nullptr);
  std::signal(signal, count_signal);
  ready.put('r');
  sigsuspend(&none);
}

TEST(Launcher, RunsEveryRankAndReapsIt) {
  const HardLimit limit(30);
  const Channel channel;
  const Outcome outcome = run_launch(local_launch(4), [&](const Launch& launch) {
    EXPECT_EQ(launch.local_rank, launch.rank);
    EXPECT_EQ(launch.world, 4);
    EXPECT_EQ(launch.spawn, 0);
    EXPECT_EQ(launch.listen_fd >= 0, launch.rank == 0);
    channel.put(launch.port);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.lines, Lines{});
  const int port = channel.take<int>();
  EXPECT_GT(port, 0);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(channel.take<int>(), port);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(Launcher, StartsThisHostsPartOfALargerWorld) {
  const HardLimit limit(30);
  Launch launch = local_launch(2);
  launch.rank = 4;
  launch.world = 8;
  launch.master = "other-host";
  launch.port = 1234;
  const Channel channel;
  const Outcome outcome = run_launch(launch, [&](const Launch& mine) {
    channel.put(mine.rank * 10 + mine.local_rank);
    return mine.port == 1234 && mine.master == "other-host" && mine.listen_fd < 0 ? 0 : 1;
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(channel.take<int>() + channel.take<int>(), 40 + 51);
}

TEST(Launcher, AnExitCodeEndsAll) {
  const Outcome outcome = with_bad_rank([] { return 3; });
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.lines, Lines{"rank 1 ended with exit code 3 and said nothing"});
}

TEST(Launcher, AnErrorEndsAllAndIsTold) {
  const Outcome outcome = with_bad_rank([]() -> int { fail(Code::io, "disk full"); });
  EXPECT_EQ(outcome.code, 6);
  EXPECT_EQ(outcome.lines, Lines{"[rank 1] E-io: disk full"});
}

TEST(Launcher, AnUnknownExceptionIsABug) {
  const Outcome outcome = with_bad_rank([]() -> int { throw std::out_of_range("vector::at"); });
  EXPECT_EQ(outcome.code, 70);
  ASSERT_EQ(outcome.lines.size(), 1U);
  EXPECT_NE(outcome.lines[0].find("vector::at"), std::string::npos);
}

TEST(Launcher, C7AKilledRankIsNamedWithItsSignal) {
  const Outcome outcome = with_bad_rank([] { return raise(SIGKILL); });
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_EQ(outcome.lines, Lines{"rank 1 was killed by signal 9 (SIGKILL; out of memory?)"});
}

TEST(Launcher, AKilledRankIsNamedWithItsStep) {
  const HardLimit limit(30);
  const auto rank_main = [](const Launch& launch) {
    launch.step_told->store(7 + launch.rank);
    return launch.rank == 1 ? raise(SIGKILL) : pause();
  };
  const Outcome outcome = run_launch(local_launch(3), rank_main, impatient());
  EXPECT_EQ(outcome.lines, Lines{"rank 1 was killed by signal 9 (SIGKILL; out of memory?) in step 8"});
}

TEST(Launcher, AStoppedRankIsNamedAsWhatTheOthersWaitedFor) {
  const HardLimit limit(30);
  const Channel pid;
  const auto rank_main = [&](const Launch& launch) -> int {
    if (launch.rank == 1) {
      launch.step_told->store(3);
      pid.put(getpid());
      while (true) raise(SIGSTOP);
    }
    wait_for_stop(pid.take<int>());
    fail(Code::dist, "nobody came");
  };
  const Outcome outcome = run_launch(local_launch(2), rank_main, impatient());
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.lines, Lines{"[rank 0] E-dist: nobody came; rank 1 was stopped by signal 19 (SIGSTOP) in step 3"});
}

TEST(Launcher, ARankThatStaysWhenAnotherIsDoneIsEnded) {
  const HardLimit limit(30);
  LauncherOptions options = impatient();
  options.leave_after = 0.2;
  const Outcome outcome = run_launch(
      local_launch(3), [](const Launch& launch) { return launch.rank == 1 ? pause() : 0; }, options);
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.lines, Lines{"rank 1 was still there 0.2 s after another had done its work"});
}

TEST(Launcher, ACrashIsNamedWithItsSignal) {
  const Outcome outcome = with_bad_rank([] { return raise(SIGSEGV); });
  EXPECT_EQ(outcome.code, 128 + SIGSEGV);
  EXPECT_EQ(outcome.lines, Lines{"rank 1 was killed by signal 11 (SIGSEGV)"});
}

TEST(Launcher, RanksThatIgnoreSigtermAreKilled) {
  const HardLimit limit(30);
  const Channel ready;
  const auto rank_main = [&](const Launch& launch) {
    if (launch.rank == 0) return ready.take<char>() == 'r' ? 4 : 0;
    std::signal(SIGTERM, SIG_IGN);
    ready.put('r');
    return pause();
  };
  EXPECT_EQ(run_launch(local_launch(2), rank_main, impatient()).code, 4);
}

TEST(Launcher, AFollowUpThatEndsFirstIsNotTheCause) {
  const HardLimit limit(30);
  const Channel gone;
  const Outcome outcome = run_launch(local_launch(3), [&](const Launch& launch) -> int {
    if (launch.rank != 1) {
      gone.put('g');
      throw Error(Code::dist, "rank 1 closed its connection").mark_secondary();
    }
    gone.take<char>();
    gone.take<char>();
    fail(Code::input, "bad token file");
  });
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.lines, Lines{"[rank 1] E-input: bad token file"});
}

TEST(Launcher, AFollowUpAloneIsStillTold) {
  const Outcome outcome = with_bad_rank([]() -> int { throw Error(Code::dist, "lost").mark_secondary(); });
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.lines, Lines{"[rank 1] E-dist: lost"});
}

TEST(Launcher, OneMessageOfManyRanksIsPrintedOnce) {
  const HardLimit limit(30);
  const Outcome outcome =
      run_launch(local_launch(4), [](const Launch&) -> int { fail(Code::config, "run.toml:3:1: no such key"); });
  EXPECT_EQ(outcome.code, 2);
  ASSERT_EQ(outcome.lines.size(), 1U);
  EXPECT_NE(outcome.lines[0].find("] E-config: run.toml:3:1: no such key"), std::string::npos);
}

TEST(Launcher, TheFirstOfSeveralCausesIsPrintedLast) {
  const HardLimit limit(30);
  const Channel pid;
  const Outcome outcome = run_launch(local_launch(2), [&](const Launch& launch) -> int {
    if (launch.rank == 0) {
      pid.put(getpid());
      while (true) pause();
    }
    kill(pid.take<int>(), SIGKILL);
    usleep(300000);  // the launcher sees rank 0 first
    fail(Code::io, "later");
  });
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_EQ(outcome.lines, (Lines{"[rank 1] E-io: later", "rank 0 was killed by signal 9 (SIGKILL; out of memory?)"}));
}

TEST(Launcher, C2ATakenPortIsAnErrorBeforeAnyRankStarts) {
  const HardLimit limit(30);
  const OwnedFd other = listen_at("127.0.0.1", 0);
  Launch launch = local_launch(2);
  launch.port = port_of(other);
  try {
    launch_local(launch, [](const Launch&) { return 0; });
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::dist);
    EXPECT_NE(std::string(error.what()).find(std::to_string(launch.port) + " of 127.0.0.1 is taken"),
              std::string::npos);
  }
}

// A launcher in a process of its own, so that it can be given signals.
Process launcher_process(int ranks, const std::function<int(const Launch&)>& rank_main, const Channel& lines) {
  return Process([&, ranks] {
    const Outcome outcome = run_launch(local_launch(ranks), rank_main);
    lines.put(outcome.lines.size());
    return outcome.code;
  });
}

TEST(Launcher, NoRankOutlivesAKilledLauncher) {
  const HardLimit limit(30);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans become ours, so that we see them end
  const Channel pids, lines;
  Process launcher = launcher_process(
      3,
      [&](const Launch&) {
        pids.put(getpid());
        return pause();
      },
      lines);
  std::vector<int> ranks;
  for (int i = 0; i < 3; ++i) ranks.push_back(pids.take<int>());
  kill(launcher.pid(), SIGKILL);
  EXPECT_EQ(launcher.join(), 128 + SIGKILL);
  for (const int pid : ranks) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

TEST(Launcher, SigtermReachesEveryRankOnceAndTheirCodeIsReturned) {
  const HardLimit limit(30);
  const Channel ready, seen, lines;
  Process launcher = launcher_process(
      2,
      [&](const Launch&) {
        wait_for_signal(SIGTERM, ready);
        seen.put(signals_seen.load());
        return 128 + SIGTERM;
      },
      lines);
  for (int i = 0; i < 2; ++i) ready.take<char>();
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.join(), 128 + SIGTERM);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(seen.take<int>(), 1);
  EXPECT_EQ(lines.take<std::size_t>(), 0U);
}

TEST(Launcher, ASecondInterruptKills) {
  const HardLimit limit(30);
  const Channel ready, seen, lines;
  Process launcher = launcher_process(
      2,
      [&](const Launch&) {
        wait_for_signal(SIGINT, ready);
        seen.put('s');
        while (true) pause();  // saving takes for ever
        return 0;
      },
      lines);
  for (int i = 0; i < 2; ++i) ready.take<char>();
  kill(launcher.pid(), SIGINT);
  for (int i = 0; i < 2; ++i) seen.take<char>();
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.join(), 128 + SIGINT);
}

TEST(Launcher, RanksWithoutAHandlerEndByTheSignalWithoutABlame) {
  const HardLimit limit(30);
  const Channel ready, lines;
  Process launcher = launcher_process(
      2,
      [&](const Launch&) {
        ready.put('r');
        return pause();
      },
      lines);
  for (int i = 0; i < 2; ++i) ready.take<char>();
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.join(), 128 + SIGTERM);
  EXPECT_EQ(lines.take<std::size_t>(), 0U);
}

TEST(Launcher, C22RanksThatLeaveInOrderAfterASignalToOneAreNotBlamed) {
  const HardLimit limit(30);
  const Channel agreed;
  const Outcome outcome = run_launch(
      local_launch(2),
      [&](const Launch& launch) {
        if (launch.rank == 1) {
          agreed.put('a');
          return 128 + SIGTERM;
        }
        agreed.take<char>();
        usleep(100000);  // still saving when rank 1 is gone
        return 128 + SIGTERM;
      },
      impatient());
  EXPECT_EQ(outcome.code, 128 + SIGTERM);
  EXPECT_EQ(outcome.lines, Lines{});
}

}  // namespace
}  // namespace shale

// Runs a test's body on forked ranks of this host, through the launcher.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/comm/launcher.h"
#include "core/comm/world.h"

namespace shale {

struct Outcome {
  int code = 0;
  std::vector<std::string> lines;  // what the launcher printed
};

// The time limit of a test: the whole process dies, its ranks with it.
class HardLimit {
 public:
  explicit HardLimit(unsigned seconds) { alarm(seconds); }
  ~HardLimit() { alarm(0); }
};

inline Launch local_launch(int ranks) {
  Launch launch;
  launch.world = launch.local_world = launch.spawn = ranks;
  launch.init_timeout = 30;
  launch.timeout = 30;
  return launch;
}

inline Outcome run_launch(const Launch& launch, const std::function<int(const Launch&)>& rank_main,
                          LauncherOptions options = {}) {
  Outcome out;
  options.print = [&out](const std::string& line) { out.lines.push_back(line); };
  out.code = launch_local(launch, rank_main, options);
  return out;
}

// Failed expectations of a rank give exit code 1.
inline Outcome run_ranks(const Launch& launch, const std::function<void(World&)>& body) {
  const HardLimit limit(60);
  const bool failed_before = testing::Test::HasFailure();
  return run_launch(launch, [&](const Launch& mine) {
    const auto world = World::join(mine);
    body(*world);
    return testing::Test::HasFailure() && !failed_before ? 1 : 0;
  });
}

inline void on_ranks(int ranks, const std::function<void(World&)>& body) {
  const Outcome outcome = run_ranks(local_launch(ranks), body);
  EXPECT_EQ(outcome.code, 0) << (outcome.lines.empty() ? "" : outcome.lines.back());
}

}  // namespace shale

#include <map>

#include "support.h"

namespace shale {
namespace {

using test::small_model;
using test::topology_of;
using test::with_sharding;

TEST(Services, LogAndRun) {
  const test::TempFolder scratch;
  std::atomic<bool> ending = true;
  std::map<std::string, double> metrics;
  RunContext run{.rank = 3,
                 .world = 4,
                 .local_rank = 1,
                 .seed = 99,
                 .scratch_root = scratch.path(),
                 .wait_limit = 12.5,
                 .ending = &ending,
                 .metric = [&](const std::string& name, const std::string&, double value) { metrics[name] = value; }};
  const Log log(0);
  testing::internal::CaptureStderr();
  auto plugins = load_plugins(with_sharding("services"), {}, log, &run);
  plugins->sharding().plan(small_model(), topology_of(4, 4));
  const std::string printed = testing::internal::GetCapturedStderr();
  test::expect_contains(printed, {"[sharding] services: two lines", scratch.path() + "/shale-sharding-rank3-"});
  EXPECT_EQ(metrics["sum"], 4950);
  EXPECT_EQ(metrics["rank"], 143);
  EXPECT_EQ(metrics["seed"], 99);
  EXPECT_EQ(metrics["limit"], 12.5);
  EXPECT_EQ(metrics["ending"], 1);
  EXPECT_FALSE(std::filesystem::is_empty(scratch.path()));
  plugins.reset();
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Services, NoRunWhilePlanning) {
  const Log log(1);
  const auto plugins = load_plugins(with_sharding("services"), {}, log);
  EXPECT_NO_THROW(plugins->sharding().plan(small_model(), topology_of(4, 4)));
}

TEST(Services, AScratchFolderThatCannotBeMade) {
  RunContext run;
  run.scratch_root = "/nowhere";
  const Log log(0);
  testing::internal::CaptureStderr();
  const auto plugins = load_plugins(with_sharding("services"), {}, log, &run);
  plugins->sharding().plan(small_model(), topology_of(4, 4));
  test::expect_contains(testing::internal::GetCapturedStderr(),
                        {"no scratch folder can be made in /nowhere", "TMPDIR"});
}

}  // namespace
}  // namespace shale

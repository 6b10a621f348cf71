#include "core/train/snapshots.h"

#include <gtest/gtest.h>

#include "core/checkpoint/snapshot.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/train/mini_run.h"

namespace shale {
namespace {

TEST(Snapshots, HostsMayKeepTheirPluginsInDifferentPlaces) {
  const test::TempFolder folder;
  on_ranks(2, [&](World& world) {
    Config config;
    config.checkpoint.enable = true;
    MiniRun run(world, config);
    Snapshots snapshots(*run, folder / "checkpoints");
    EXPECT_EQ(snapshots.save(), Snapshots::Outcome::saved);
  });
  EXPECT_EQ(list_snapshots(folder / "checkpoints").size(), 1u);
}

}  // namespace
}  // namespace shale

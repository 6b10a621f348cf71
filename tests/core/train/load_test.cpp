#include "core/train/load.h"

#include <gtest/gtest.h>

#include "core/checkpoint/snapshot.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/train/mini_run.h"

namespace shale {
namespace {

TEST(Save, HostsMayKeepTheirPluginsInDifferentPlaces) {
  const test::TempFolder folder;
  on_ranks(2, [&](World& world) {
    MiniRun run(world);
    save(*run, folder / "checkpoints");
  });
  EXPECT_EQ(list_snapshots(folder / "checkpoints").size(), 1u);
}

}  // namespace
}  // namespace shale

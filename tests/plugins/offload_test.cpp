// none: nothing is placed anywhere but on the device.
#include <gtest/gtest.h>

#include "plans.h"
#include "plugin_files.h"

namespace shale {
namespace {

using namespace conform;

TEST(OffloadNone, EverythingStaysOnTheDevice) {
  FakeHost host;
  const Library library(plugin_file("offload_none"));
  const Instance plugin(library, SHALE_KIND_OFFLOAD, host);
  const FakeModel model;
  const FakeTopology topology(2, 2);
  OffloadAnswer plan;
  const Answer answer = ask(plugin, {model, topology}, plan);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  ASSERT_EQ(plan.tiers.size(), 4u);
  for (auto& unit : plan.tiers)
    for (auto tier : unit) EXPECT_EQ(tier, SHALE_TIER_DEVICE);
}

}  // namespace
}  // namespace shale

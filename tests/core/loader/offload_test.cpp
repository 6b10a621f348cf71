#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::load;
using test::option;
using test::small_model;
using test::topology_of;

OffloadPlan plan_in(const std::string& mood) {
  Config c = test::good_config();
  c.offload.plugin = test::bad("moody");
  c.offload.options = {option("mood", mood)};
  OffloadAsk ask;
  ask.bytes.resize(4);
  ask.bytes[1][1] = 77;
  return load(c)->offload().plan(small_model(), topology_of(2, 2), ask);
}

TEST(Offload, Tiers) {
  EXPECT_EQ(plan_in("good").units[1][1], Tier::device);
  const OffloadPlan plan = plan_in("host");
  EXPECT_EQ(plan.units[1][static_cast<std::size_t>(MemoryClass::moments)], Tier::host);
  EXPECT_EQ(plan.units[0][1], Tier::device);
  EXPECT_EQ(plan.units[1][0], Tier::device);
}

TEST(Offload, Errors) {
  expect_error(Code::internal, {"[offload] moody", "unit: is 99, the model has 4 units"},
               [] { plan_in("wrong unit"); });
  expect_error(Code::internal, {"memory_class: is 6"}, [] { plan_in("wrong class"); });
  expect_error(Code::internal, {"tier: is 4"}, [] { plan_in("wrong tier"); });
  expect_error(Code::config, {"run.toml:8:10", "STORE needs shale.offload.store/1"}, [] { plan_in("store"); });
  expect_error(Code::config, {"tile_bytes: this shale moves nothing"}, [] { plan_in("pipeline"); });
}

TEST(Offload, AModelWithoutItsFiguresIsABugOfOurs) {
  const auto plugins = load(test::good_config());
  expect_error(Code::internal, {"figures of 0 units"},
               [&] { plugins->offload().plan(small_model(), topology_of(2, 2), {}); });
}

}  // namespace
}  // namespace shale

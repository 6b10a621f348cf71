#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::load;
using test::option;
using test::small_model;
using test::topology_of;
using test::with_sharding;

ShardPlan plan_in(const std::string& mood, int world = 8, int per_node = 2) {
  const auto plugins = load(with_sharding("moody", {option("mood", mood)}));
  plugins->precision().plan(small_model(), topology_of(world, per_node));
  return plugins->sharding().plan(small_model(), topology_of(world, per_node));
}

TEST(Sharding, Numbers) {
  const ShardPlan plan = plan_in("hybrid");
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_EQ(plan.groups[kSelfGroup], self_partition(8));
  EXPECT_EQ(plan.groups[kWorldGroup], world_partition(8));
  ASSERT_EQ(plan.units.size(), 4u);
  const UnitPlan& u = plan.units[2];
  EXPECT_EQ(plan.groups[u.shard_group], (Partition{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(plan.groups[u.replica_group], (Partition{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(u.reshard_group, u.shard_group);
  EXPECT_EQ(u.replica_at, SyncAt::boundary);
  EXPECT_EQ(u.align, 16);
  EXPECT_EQ(plan.weight_slots, 3);
  EXPECT_EQ(plan.grad_slots, 2);
}

TEST(Sharding, States) {
  const ShardPlan plan = plan_in("state good");
  ASSERT_EQ(plan.states.size(), 2u);
  const StateSpec& s = plan.states[1];
  EXPECT_EQ(s.name, "next");
  EXPECT_EQ(s.scope, StateScope::shard);
  EXPECT_EQ(s.unit, kAllUnits);
  EXPECT_EQ(s.dtype, at::kFloat);
  EXPECT_EQ(s.first, StateFirst::master);
  EXPECT_FALSE(s.refuse_reshape);
  EXPECT_FALSE(plan.own.any());
}

TEST(Sharding, TheSameAnswerTwiceAndForOtherWorlds) {
  const auto plugins = load(with_sharding("good"));
  const std::string once = plugins->sharding().plan(small_model(), topology_of(8, 4)).text();
  EXPECT_EQ(plugins->sharding().plan(small_model(), topology_of(64, 8)).groups[1].size(), 64u);
  EXPECT_EQ(plugins->sharding().plan(small_model(), topology_of(1, 1)).units.size(), 4u);
  EXPECT_EQ(plugins->sharding().plan(small_model(), topology_of(8, 4)).text(), once);
}

struct Case {
  const char* mood;
  Code code;
  std::vector<std::string> parts;
};
class ShardingMood : public testing::TestWithParam<Case> {};

TEST_P(ShardingMood, IsAnErrorThatNamesThePluginAndTheArgument) {
  auto parts = GetParam().parts;
  parts.push_back("[sharding] moody");
  expect_error(GetParam().code, parts, [] { plan_in(GetParam().mood); });
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardingMood,
    testing::Values(Case{"says nothing", Code::internal, {"plan: failed with status 12 and said nothing", "moody.so"}},
                    Case{"unknown code", Code::internal, {"plan: somewhere: went wrong"}},
                    Case{"no unit", Code::config, {"run.toml:2:10", "no numbers were given for unit 0 (embedding)"}},
                    Case{"one unit", Code::config, {"no numbers were given for unit 1 (layers.0)"}},
                    Case{"wrong unit", Code::internal, {"unit: is 4, the model has 4 units"}},
                    Case{"null unit", Code::internal, {"plan: plan: has 0 bytes, ABI 0.1 has 56"}},
                    Case{"short unit", Code::internal, {"plan: has 48 bytes, ABI 0.1 has 56"}},
                    Case{"bad group", Code::internal, {"shard_group: is 9, an id that no add_... gave"}},
                    Case{"bad gather", Code::internal, {"gather_at: is 2"}},
                    Case{"bad reduce", Code::internal, {"reduce_at: is 2"}},
                    Case{"bad replica", Code::internal, {"replica_at: is 3"}},
                    Case{"far prefetch", Code::internal, {"prefetch: is 4294967295"}},
                    Case{"never", Code::config, {"replica_at: NEVER needs shale.sharding.outer/1"}},
                    Case{"outer", Code::config, {"outer_every: needs shale.sharding.outer/1"}},
                    Case{"delay", Code::internal, {"outer_delay: must be less than outer_every, 0 (got 3)"}},
                    Case{"bad join", Code::internal, {"join: is 2"}},
                    Case{"much scratch", Code::internal, {"scratch_bytes: is 18446744073709551615"}},
                    Case{"state twice", Code::internal, {"name: \"good_1\" is there already"}},
                    Case{"state Name", Code::internal, {"name: must be 1..64 of a-z, 0-9 and _ (got \"Next\")"}},
                    Case{"state null name", Code::internal, {"name: must be 1..64 of a-z, 0-9 and _ (got \"\")"}},
                    Case{"state scope", Code::internal, {"scope: of next is 4"}},
                    Case{"state unit", Code::internal, {"unit: of next is 4, the model has 4 units"}},
                    Case{"state dtype", Code::internal, {"dtype: of next is 2070"}},
                    Case{"state first", Code::internal, {"first: of next is 3"}},
                    Case{"state master", Code::internal, {"first: of next: MASTER needs scope SHARD or SHARD_RANK"}},
                    Case{"state normal", Code::internal, {"first: of next: only floats can begin as"}},
                    Case{"state reshape", Code::internal, {"on_reshape: of next is 2"}},
                    Case{"state host", Code::internal, {"on_host: of next is 2"}},
                    Case{"state numel", Code::internal, {"numel: of next is 5; in the shard scopes"}},
                    Case{"state no numel", Code::internal, {"numel: of next is 0, must be 1..2^48"}},
                    Case{"state fill", Code::internal, {"fill: of next is 128, which its dtype does not hold"}},
                    Case{"state part", Code::internal, {"fill: of next is 0.5, which its dtype does not hold"}},
                    Case{"state short", Code::internal, {"state: has 48 bytes, ABI 0.1 has 64"}},
                    Case{"state null", Code::internal, {"state: is NULL"}},
                    Case{"bad block", Code::internal, {"block: must divide the world, 8 (got 3)"}},
                    Case{"no block", Code::internal, {"block: must divide the world, 8 (got 0)"}},
                    Case{"bad stride", Code::internal, {"stride: must divide the world, 8 (got 5)"}},
                    Case{"short colors", Code::internal, {"n: must be the world, 8 (got 7)"}},
                    Case{"null colors", Code::internal, {"color: is NULL"}},
                    Case{"null group", Code::internal, {"group: is NULL"}},
                    Case{"many slots", Code::internal, {"weights: must be at most"}},
                    Case{"ignores", Code::internal, {"block: must divide the world, 8 (got 3)"}},
                    Case{"not the world", Code::config, {"run.toml:2:10", "its plan cannot be used", "counted twice"}}),
    [](const auto& info) {
      std::string name = info.param.mood;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST(Sharding, CancelledIsNeverTheFirstCause) {
  const Error e = test::error_of([] { plan_in("cancelled"); });
  EXPECT_EQ(e.code(), Code::dist);
  EXPECT_TRUE(e.secondary());
}

TEST(Sharding, UnevenNodesWherePluginNeedsEvenOnes) {
  const auto plugins = load(with_sharding("needs_even_nodes"));
  EXPECT_NO_THROW(plugins->sharding().plan(small_model(), topology_of(6, 3)));
  expect_error(Code::config, {"needs nodes with equal numbers of ranks", "the 7 ranks lie unevenly on 3 nodes"},
               [&] { plugins->sharding().plan(small_model(), topology_of(7, 3)); });
}

}  // namespace
}  // namespace shale

// no_shard and full_shard: the numbers of their plans for worlds, models and options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans.h"
#include "plugin_files.h"

namespace shale {
namespace {

using namespace conform;

constexpr std::uint32_t kWorlds[] = {1, 2, 3, 8};

struct Asked {
  Answer answer;
  ShardingAnswer plan;
};

Asked ask_for(const std::string& name, const Given& given, const ModelShape& shape, std::uint32_t world) {
  FakeHost host;
  const Library library(plugin_file(name));
  const Instance plugin(library, SHALE_KIND_SHARDING, host, given);
  const FakeModel model(shape);
  const FakeTopology topology(world, 4);
  Asked asked;
  asked.answer = ask(plugin, {model, topology}, asked.plan);
  EXPECT_EQ(host.live(), 0);
  if (asked.answer.code == 0) {
    EXPECT_THAT(problems(asked.plan, model), testing::IsEmpty());
  }
  return asked;
}

std::vector<std::uint32_t> reshard_groups(const ShardingAnswer& plan) {
  std::vector<std::uint32_t> groups;
  for (auto& u : plan.units) groups.push_back(u->reshard_group);
  return groups;
}

std::vector<std::uint32_t> all(std::uint32_t world) {
  std::vector<std::uint32_t> ranks(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) ranks[rank] = rank;
  return ranks;
}

TEST(NoShard, EveryRankHoldsEverythingAndSumsOverAll) {
  for (auto world : kWorlds) {
    const auto [answer, plan] = ask_for("sharding_no_shard", {}, {}, world);
    ASSERT_EQ(answer.code, 0u) << to_text(answer);
    for (auto& u : plan.units)
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        EXPECT_EQ(plan.part(u->shard_group, rank), std::vector{rank});
        EXPECT_EQ(plan.part(u->reshard_group, rank), std::vector{rank});
        EXPECT_EQ(plan.part(u->replica_group, rank), all(world));
        EXPECT_EQ(u->replica_at, SHALE_AT_BOUNDARY);
      }
  }
}

TEST(NoShard, SumsAfterEachMicroStepIfAsked) {
  const auto [answer, plan] = ask_for("sharding_no_shard", {{"reduce_at", "micro_step"}}, {}, 2);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  for (auto& u : plan.units) EXPECT_EQ(u->replica_at, SHALE_AT_MICRO_STEP);
}

TEST(FullShard, SplitsEveryUnitOverAllRanks) {
  for (auto world : kWorlds) {
    const auto [answer, plan] = ask_for("sharding_full_shard", {}, {.layers = 5}, world);
    ASSERT_EQ(answer.code, 0u) << to_text(answer);
    EXPECT_EQ(plan.weight_slots, 0u);
    EXPECT_EQ(plan.grad_slots, 0u);
    for (auto& u : plan.units) {
      EXPECT_EQ(plan.part(u->shard_group, 0), all(world));
      EXPECT_EQ(plan.part(u->replica_group, 0), std::vector{0u});
      EXPECT_EQ(u->gather_at, SHALE_GATHER_ON_USE);
      EXPECT_EQ(u->reduce_at, SHALE_AT_MICRO_STEP);
      EXPECT_EQ(u->prefetch, 1u);
      EXPECT_EQ(u->align, 64u);
      EXPECT_EQ(u->outer_every, 0u);
      EXPECT_EQ(u->scratch_bytes, 0u);
    }
  }
}

constexpr std::uint32_t kSelf = SHALE_GROUP_SELF, kWorld = SHALE_GROUP_WORLD;

TEST(FullShard, TheLastUnitKeepsItsWeights) {
  const auto asked = ask_for("sharding_full_shard", {}, {.layers = 3}, 2);
  EXPECT_EQ(reshard_groups(asked.plan), (std::vector{kWorld, kWorld, kWorld, kWorld, kSelf}));
}

TEST(FullShard, ATiedEmbeddingKeepsItsWeightsForTheHead) {
  const auto asked = ask_for("sharding_full_shard", {}, {.layers = 2, .tied = true}, 2);
  EXPECT_EQ(reshard_groups(asked.plan), (std::vector{kSelf, kWorld, kWorld, kSelf}));
}

TEST(FullShard, ARepeatedLayerIsNoReasonToKeep) {
  const auto asked = ask_for("sharding_full_shard", {}, {.layers = 2, .repeated = true}, 2);
  EXPECT_EQ(reshard_groups(asked.plan), (std::vector{kWorld, kWorld, kWorld, kSelf}));
}

TEST(FullShard, OptionsReachThePlan) {
  const Given given = {
      {"prefetch", "8"}, {"align", "65536"}, {"reduce_at", "boundary"}, {"weight_slots", "9"}, {"grad_slots", "1024"}};
  const auto [answer, plan] = ask_for("sharding_full_shard", given, {}, 3);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  EXPECT_EQ(plan.weight_slots, 9u);
  EXPECT_EQ(plan.grad_slots, 1024u);
  for (auto& u : plan.units) {
    EXPECT_EQ(u->prefetch, 8u);
    EXPECT_EQ(u->align, 65536u);
    EXPECT_EQ(u->reduce_at, SHALE_AT_BOUNDARY);
  }
}

TEST(FullShard, NoPrefetch) {
  const auto [answer, plan] = ask_for("sharding_full_shard", {{"prefetch", "0"}, {"weight_slots", "1"}}, {}, 2);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  for (auto& u : plan.units) EXPECT_EQ(u->prefetch, 0u);
}

TEST(FullShard, TooFewWeightSlotsForThePrefetchNamesTheOption) {
  const auto asked = ask_for("sharding_full_shard", {{"prefetch", "2"}, {"weight_slots", "2"}}, {}, 2);
  EXPECT_EQ(asked.answer.code, SHALE_BAD_OPTION);
  EXPECT_EQ(asked.answer.where, "weight_slots");
  EXPECT_EQ(asked.answer.text, "must be 0 or at least prefetch + 1 = 3 (got 2)");
}

}  // namespace
}  // namespace shale

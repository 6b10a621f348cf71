// The built-in strategies: the numbers of their plans for worlds, models and options.
#include "sharding_plans.h"

namespace shale {
namespace {

constexpr std::uint32_t kWorlds[] = {1, 2, 3, 8};

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

TEST(ShardGradOp, SplitsOverAllRanksAndKeepsWhatItGathered) {
  for (auto world : kWorlds) {
    const auto [answer, plan] = ask_for("sharding_shard_grad_op", {}, {}, world);
    ASSERT_EQ(answer.code, 0u) << to_text(answer);
    for (auto& u : plan.units) {
      EXPECT_EQ(plan.part(u->shard_group, 0), all(world));
      EXPECT_EQ(plan.part(u->replica_group, 0), std::vector{0u});
      EXPECT_EQ(u->reshard_group, kSelf);
      EXPECT_EQ(u->gather_at, SHALE_GATHER_ON_USE);
      EXPECT_EQ(u->reduce_at, SHALE_AT_MICRO_STEP);
      EXPECT_EQ(u->prefetch, 1u);
      EXPECT_EQ(u->align, 64u);
    }
  }
}

TEST(ShardGradOp, OptionsReachThePlan) {
  const Given given = {{"prefetch", "0"}, {"align", "1"}, {"reduce_at", "boundary"}, {"grad_slots", "3"}};
  const auto [answer, plan] = ask_for("sharding_shard_grad_op", given, {}, 3);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  EXPECT_EQ(plan.weight_slots, 0u);
  EXPECT_EQ(plan.grad_slots, 3u);
  for (auto& u : plan.units) {
    EXPECT_EQ(u->prefetch, 0u);
    EXPECT_EQ(u->align, 1u);
    EXPECT_EQ(u->reduce_at, SHALE_AT_BOUNDARY);
  }
}

TEST(Zero, GathersAfterTheUpdateAndDiffersInWhenGradientsAreSummed) {
  for (auto world : kWorlds)
    for (bool two : {false, true}) {
      const Given given = {{"align", "16"}, {"grad_slots", "5"}};
      const auto [answer, plan] = ask_for(two ? "sharding_zero2" : "sharding_zero1", given, {.tied = true}, world);
      ASSERT_EQ(answer.code, 0u) << to_text(answer);
      EXPECT_EQ(plan.grad_slots, 5u);
      for (auto& u : plan.units) {
        EXPECT_EQ(plan.part(u->shard_group, 0), all(world));
        EXPECT_EQ(plan.part(u->replica_group, 0), std::vector{0u});
        EXPECT_EQ(u->reshard_group, kSelf);
        EXPECT_EQ(u->gather_at, SHALE_GATHER_AFTER_UPDATE);
        EXPECT_EQ(u->reduce_at, two ? SHALE_AT_MICRO_STEP : SHALE_AT_BOUNDARY);
        EXPECT_EQ(u->align, 16u);
      }
    }
}

constexpr const char* kHybrids[] = {"sharding_hybrid_shard", "sharding_hybrid_shard_zero2"};

TEST(Hybrid, SplitsInsideANodeAndHasReplicasAcross) {
  for (auto name : kHybrids) {
    const auto [answer, plan] = ask_for(name, {}, {}, 8);
    ASSERT_EQ(answer.code, 0u) << to_text(answer);
    const bool zero2 = name == kHybrids[1];
    for (std::size_t k = 0; k < plan.units.size(); ++k) {
      const auto& u = plan.units[k];
      EXPECT_EQ(plan.part(u->shard_group, 1), (std::vector{0u, 1u, 2u, 3u}));
      EXPECT_EQ(plan.part(u->shard_group, 6), (std::vector{4u, 5u, 6u, 7u}));
      EXPECT_EQ(plan.part(u->replica_group, 6), (std::vector{2u, 6u}));
      const bool last = k + 1 == plan.units.size();
      EXPECT_EQ(u->reshard_group, zero2 || last ? kSelf : u->shard_group);
      EXPECT_EQ(u->gather_at, SHALE_GATHER_ON_USE);
      EXPECT_EQ(u->reduce_at, SHALE_AT_MICRO_STEP);
      EXPECT_EQ(u->replica_at, SHALE_AT_BOUNDARY);
      EXPECT_EQ(u->prefetch, 1u);
      EXPECT_EQ(u->align, 64u);
    }
  }
}

TEST(Hybrid, OptionsReachThePlan) {
  for (auto name : kHybrids) {
    Given given = {{"shard_size", "2"},          {"prefetch", "3"},  {"align", "8"}, {"reduce_at", "boundary"},
                   {"replica_at", "micro_step"}, {"grad_slots", "6"}};
    if (name == kHybrids[0]) given["weight_slots"] = "4";
    const auto [answer, plan] = ask_for(name, given, {.tied = true}, 6);
    ASSERT_EQ(answer.code, 0u) << to_text(answer);
    EXPECT_EQ(plan.weight_slots, name == kHybrids[0] ? 4u : 0u);
    EXPECT_EQ(plan.grad_slots, 6u);
    EXPECT_EQ(plan.units[0]->reshard_group, kSelf);  // the head needs it
    for (auto& u : plan.units) {
      EXPECT_EQ(plan.part(u->shard_group, 3), (std::vector{2u, 3u}));
      EXPECT_EQ(plan.part(u->replica_group, 3), (std::vector{1u, 3u, 5u}));
      EXPECT_EQ(u->prefetch, 3u);
      EXPECT_EQ(u->align, 8u);
      EXPECT_EQ(u->reduce_at, SHALE_AT_BOUNDARY);
      EXPECT_EQ(u->replica_at, SHALE_AT_MICRO_STEP);
    }
  }
}

// The ends of the range are other strategies: groups of one are replicas only, one group is a split only.
TEST(Hybrid, GroupsOfOneOrAllAreTheSelfAndWorldGroups) {
  for (auto name : kHybrids)
    for (auto world : {2u, 3u, 8u}) {
      const auto one = ask_for(name, {{"shard_size", "1"}}, {}, world).plan;
      for (auto& u : one.units) {
        EXPECT_EQ(u->shard_group, kSelf);
        EXPECT_EQ(u->reshard_group, kSelf);
        EXPECT_EQ(u->replica_group, kWorld);
      }
      const auto whole = ask_for(name, {{"shard_size", std::to_string(world)}}, {}, world).plan;
      const auto alike = name == kHybrids[0] ? "sharding_full_shard" : "sharding_shard_grad_op";
      EXPECT_EQ(reshard_groups(whole), reshard_groups(ask_for(alike, {}, {}, world).plan));
      for (auto& u : whole.units) {
        EXPECT_EQ(u->shard_group, kWorld);
        EXPECT_EQ(u->replica_group, kSelf);
      }
    }
}

TEST(Hybrid, RefusesSizesThatDoNotDivideTheWorld) {
  for (auto name : kHybrids) {
    auto asked = ask_for(name, {{"shard_size", "3"}}, {}, 8);
    EXPECT_EQ(asked.answer.code, SHALE_BAD_OPTION);
    EXPECT_EQ(asked.answer.where, "shard_size");
    EXPECT_EQ(asked.answer.text, "must divide the number of ranks, 8 (got 3)");
    asked = ask_for(name, {{"shard_size", "16"}}, {}, 8);
    EXPECT_EQ(asked.answer.text, "must divide the number of ranks, 8 (got 16)");
    asked = ask_for(name, {}, {}, 6, 4);  // nodes of 4 and 2
    EXPECT_EQ(asked.answer.where, "shard_size");
    EXPECT_EQ(asked.answer.text, "must be given: the nodes have different numbers of ranks");
  }
  const auto slots = ask_for(kHybrids[0], {{"prefetch", "2"}, {"weight_slots", "2"}}, {}, 4);
  EXPECT_EQ(slots.answer.where, "weight_slots");
}

}  // namespace
}  // namespace shale

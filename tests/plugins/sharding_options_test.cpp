// Options that several strategies share, and mics.
#include "sharding_plans.h"

namespace shale {
namespace {

constexpr const char* kSplitting[] = {"sharding_full_shard", "sharding_shard_grad_op", "sharding_zero1",
                                      "sharding_zero2",      "sharding_hybrid_shard",  "sharding_hybrid_shard_zero2",
                                      "sharding_mics"};

std::vector<std::uint32_t> joined(const ShardingAnswer& plan) {
  std::vector<std::uint32_t> out;
  for (auto& u : plan.units) out.push_back(u->join);
  return out;
}

TEST(SharedOptions, LayersAreJoinedInRunsOfTheSizeAsked) {
  for (auto name : kSplitting) {
    SCOPED_TRACE(name);
    const auto plan = [&](const char* together, int layers) {
      return joined(ask_for(name, {{"layers_per_gather", together}}, {.layers = layers}, 4).plan);
    };
    EXPECT_EQ(plan("1", 3), (std::vector{0u, 0u, 0u, 0u, 0u}));
    EXPECT_EQ(plan("2", 5), (std::vector{0u, 0u, 1u, 0u, 1u, 0u, 0u}));
    EXPECT_EQ(plan("8", 3), (std::vector{0u, 0u, 1u, 1u, 0u}));
  }
}

TEST(SharedOptions, SmallUnitsStayWholeAndAreSummedOverAllRanks) {
  const FakeModel model({.layers = 2});
  std::uint64_t layer = model.get()->units[1]->numel;
  for (auto name : kSplitting)
    for (const char* reduce : {"micro_step", "boundary"}) {
      SCOPED_TRACE(name);
      const bool zero = std::string(name).starts_with("sharding_zero");
      Given given{{"min_shard_numel", std::to_string(layer)}};
      if (!zero) given["reduce_at"] = reduce;
      const auto [answer, plan] = ask_for(name, given, {.layers = 2}, 4, 2);
      ASSERT_EQ(answer.code, 0u) << to_text(answer);
      for (std::size_t k = 0; k < plan.units.size(); ++k) {
        const auto& u = *plan.units[k];
        if (model.get()->units[k]->numel >= layer) {
          EXPECT_NE(u.shard_group, kSelf);
          continue;
        }
        EXPECT_EQ(u.shard_group, kSelf);
        EXPECT_EQ(u.reshard_group, kSelf);
        EXPECT_EQ(u.replica_group, kWorld);
        EXPECT_EQ(u.replica_at, u.reduce_at);
      }
      given["min_shard_numel"] = std::to_string(layer + 1);
      EXPECT_EQ(ask_for(name, given, {.layers = 2}, 4, 2).plan.units[1]->shard_group, kSelf);
    }
}

TEST(FullShard, ReshardSizeSaysHowManyRanksKeepPieces) {
  const auto plan = [](const char* size) {
    return ask_for("sharding_full_shard", {{"reshard_size", size}}, {.tied = true}, 8);
  };
  const auto pairs = plan("2").plan;
  EXPECT_EQ(pairs.part(pairs.units[1]->reshard_group, 5), (std::vector{4u, 5u}));
  EXPECT_EQ(pairs.part(pairs.units[1]->shard_group, 5), all(8));
  EXPECT_EQ(pairs.units.front()->reshard_group, kSelf);  // tied
  EXPECT_EQ(pairs.units.back()->reshard_group, kSelf);   // the last one
  EXPECT_EQ(plan("0").plan.units[1]->reshard_group, kWorld);
  const auto drops = plan("8").plan, keeps = plan("1").plan;
  EXPECT_EQ(drops.units[1]->reshard_group, kWorld);
  for (auto& u : keeps.units) EXPECT_EQ(u->reshard_group, kSelf);
  EXPECT_EQ(reshard_groups(keeps), reshard_groups(ask_for("sharding_shard_grad_op", {}, {.tied = true}, 8).plan));
  for (const char* size : {"3", "16"}) {
    const auto refused = plan(size).answer;
    EXPECT_EQ(refused.code, SHALE_BAD_OPTION);
    EXPECT_EQ(refused.where, "reshard_size");
    EXPECT_EQ(refused.text, "must divide the number of ranks, 8 (got " + std::string(size) + ")");
  }
}

// Ranks of a group, in order, for each of the world.
std::vector<std::vector<std::uint32_t>> parts(const ShardingAnswer& plan, std::uint32_t group, std::uint32_t world) {
  std::vector<std::vector<std::uint32_t>> out;
  for (std::uint32_t r = 0; r < world; ++r) out.push_back(plan.part(group, r));
  return out;
}

TEST(Mics, GroupsMaySpanNodesAndAreGatheredInTwoLevels) {
  const auto [answer, plan] = ask_for("sharding_mics", {{"shard_size", "4"}}, {}, 8, 2);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  ASSERT_EQ(plan.groups.size(), 6u);  // self, world, shards, replicas, the two levels
  for (auto& u : plan.units) {
    EXPECT_EQ(plan.part(u->shard_group, 5), (std::vector{4u, 5u, 6u, 7u}));
    EXPECT_EQ(plan.part(u->replica_group, 5), (std::vector{1u, 5u}));
    EXPECT_EQ(u->replica_at, SHALE_AT_BOUNDARY);
    EXPECT_GT(u->scratch_bytes, 0u);
  }
  EXPECT_EQ(parts(plan, 4, 8)[5], (std::vector{5u, 7u}));  // equal place in their nodes
  EXPECT_EQ(parts(plan, 5, 8)[5], (std::vector{4u, 5u}));  // one node
  EXPECT_EQ(reshard_groups(plan), (std::vector{2u, 2u, 2u, kSelf}));
}

TEST(Mics, OneLevelWhereAGroupLiesInOneNodeOrUnevenly) {
  EXPECT_EQ(ask_for("sharding_mics", {}, {}, 8, 4).plan.groups.size(), 4u);  // a node by default
  EXPECT_EQ(ask_for("sharding_mics", {{"shard_size", "6"}}, {}, 6, 4).plan.groups.size(), 2u);
  EXPECT_EQ(ask_for("sharding_mics", {{"shard_size", "4"}}, {}, 4, 1).plan.groups.size(), 2u);
  EXPECT_EQ(ask_for("sharding_mics", {{"shard_size", "4"}, {"hierarchical", "false"}}, {}, 8, 2).plan.groups.size(),
            4u);
}

TEST(Mics, TheWholeWorldIsFullShardAndOneRankIsNoShard) {
  for (auto hierarchical : {"auto", "false"}) {
    const auto whole = ask_for("sharding_mics", {{"shard_size", "4"}, {"hierarchical", hierarchical}}, {}, 4).plan;
    EXPECT_EQ(reshard_groups(whole), reshard_groups(ask_for("sharding_full_shard", {}, {}, 4).plan));
    for (auto& u : whole.units) EXPECT_EQ(u->shard_group, kWorld);
    for (auto& u : ask_for("sharding_mics", {{"shard_size", "1"}}, {}, 4).plan.units) {
      EXPECT_EQ(u->shard_group, kSelf);
      EXPECT_EQ(u->replica_group, kWorld);
    }
  }
}

TEST(Mics, RefusesWhatItCannotDo) {
  const auto refusal = [](const Given& given, std::uint32_t world, std::uint32_t node) {
    const auto answer = ask_for("sharding_mics", given, {}, world, node).answer;
    EXPECT_EQ(answer.code, SHALE_BAD_OPTION);
    return answer.where + ": " + answer.text;
  };
  EXPECT_EQ(refusal({{"shard_size", "3"}}, 8, 4), "shard_size: must divide the number of ranks, 8 (got 3)");
  EXPECT_EQ(refusal({}, 6, 4), "shard_size: must be given: the nodes have different numbers of ranks");
  EXPECT_EQ(refusal({{"hierarchical", "true"}}, 8, 4),
            "hierarchical: must not be \"true\" here: shard groups of 4 do not consist of equally many ranks, at "
            "least 2, of 2 or more nodes");
  EXPECT_EQ(refusal({{"hierarchical", "true"}, {"layers_per_gather", "2"}}, 8, 4),
            "layers_per_gather: must be 1 with hierarchical = \"true\"");
  EXPECT_EQ(refusal({{"prefetch", "2"}, {"weight_slots", "1"}}, 8, 4),
            "weight_slots: must be 0 or at least prefetch + 1 = 3 (got 1)");
}

}  // namespace
}  // namespace shale

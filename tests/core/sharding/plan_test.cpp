#include "core/sharding/plan.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/architecture.h"
#include "tests/core/base/error_text.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

constexpr int kWorld = 4;

Topology world_of(int n) {
  Topology t;
  t.world = n, t.node_of_rank.assign(n, 0);
  return t;
}

ModelInfo model() {
  Architecture a;
  a.n_layers = 2;
  return describe(a);
}

ShardPlan full_shard() {
  ShardPlan plan;
  plan.groups = {self_partition(kWorld), world_partition(kWorld)};
  UnitPlan u;
  u.shard_group = u.reshard_group = kWorldGroup;
  plan.units.assign(model().units.size(), u);
  return plan;
}

// What a plan that is right but for one change is told.
std::string refusal(const std::function<void(ShardPlan&)>& change) {
  auto plan = full_shard();
  change(plan);
  return error_text(Code::config, [&] { validate(plan, model(), world_of(kWorld)); });
}

TEST(ValidatePlan, TakesWhatTheEngineCanDo) {
  const auto m = model();
  auto plan = full_shard();
  EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
  for (auto& u : plan.units) u.reshard_group = kSelfGroup;  // weights are kept
  EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
  for (auto& u : plan.units) u.gather_at = GatherAt::after_update;
  EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
  for (auto& u : plan.units) u = {}, u.replica_group = kWorldGroup;  // replicas only
  EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
  plan.groups.push_back({0, 0, 1, 1}), plan.groups.push_back({0, 1, 0, 1});  // both
  for (auto& u : plan.units) u.shard_group = u.reshard_group = 2, u.replica_group = 3;
  EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
}

TEST(ValidatePlan, RefusesWrongSizes) {
  EXPECT_THAT(refusal([](auto& p) { p.units.pop_back(); }), HasSubstr("the plan has 3 units, the model 4"));
  EXPECT_THAT(refusal([](auto& p) { p.groups.pop_back(); }), HasSubstr("lacks the groups self and world"));
  EXPECT_THAT(refusal([](auto& p) { p.groups.push_back({0, 0}); }), HasSubstr("has 2 ranks, the run 4"));
  EXPECT_THAT(refusal([](auto& p) { p.weight_slots = -1; }), HasSubstr("asks for -1 weight and 0 gradient slots"));
  EXPECT_THAT(refusal([](auto& p) { p.grad_slots = -3; }), HasSubstr("0 weight and -3 gradient slots"));
}

TEST(ValidatePlan, RefusesGroupsThatAreNotThere) {
  EXPECT_THAT(refusal([](auto& p) { p.units[1].shard_group = 2; }),
              HasSubstr("unit layers.0 names shard group 2, but there are only 2 groups"));
  EXPECT_THAT(refusal([](auto& p) { p.units[3].replica_group = -1; }), HasSubstr("unit head names replica group -1"));
  EXPECT_THAT(refusal([](auto& p) { p.units[0].reshard_group = 9; }),
              HasSubstr("unit embedding names reshard group 9"));
}

TEST(ValidatePlan, RefusesWhatThisVersionCannotDo) {
  EXPECT_THAT(refusal([](auto& p) { p.units[2].reduce_at = SyncAt::never; }),
              HasSubstr("unit layers.1 never sums its gradients"));
  EXPECT_THAT(refusal([](auto& p) { p.units[2].replica_at = SyncAt::never; }), HasSubstr("shale.sharding.outer/1"));
  EXPECT_THAT(refusal([](auto& p) { p.units[0].gather_at = GatherAt::after_update; }),
              HasSubstr("unit embedding is gathered after the update, so it must keep its weights"));
  EXPECT_THAT(refusal([](auto& p) {
                p.groups.push_back({0, 0, 1, 1});
                p.units[1].reshard_group = 2;
              }),
              HasSubstr("reshard group of unit layers.0 is neither self nor its shard group"));
  EXPECT_THAT(refusal([](auto& p) { p.units[1].prefetch = -1; }),
              HasSubstr("unit layers.0 has prefetch -1 and align 1; they must be at least 0 and 1"));
  EXPECT_THAT(refusal([](auto& p) { p.units[1].align = 0; }), HasSubstr("has prefetch 1 and align 0"));
}

TEST(ValidatePlan, RefusesGradientsThatAreNotSummedOverTheWorldOnce) {
  EXPECT_THAT(refusal([](auto& p) { p.units[1].shard_group = p.units[1].reshard_group = kSelfGroup; }),
              HasSubstr("unit layers.0 sums gradients over 1 x 1 ranks, not over the 4 ranks of the run"));
  EXPECT_THAT(refusal([](auto& p) { p.units[1].replica_group = kWorldGroup; }),
              HasSubstr("unit layers.0 two ranks share both their shard group and their replica group"));
  EXPECT_THAT(refusal([](auto& p) {
                p.groups.push_back({0, 0, 0, 1});
                p.units[1].shard_group = p.units[1].reshard_group = 2;
              }),
              HasSubstr("shard group of unit layers.0 has parts of 3 and 1 ranks; all parts must be of one size"));
  EXPECT_THAT(refusal([](auto& p) {
                p.groups.push_back({0, 0, 1, 1});  // each half sums for itself
                p.units[1].shard_group = p.units[1].reshard_group = 2;
              }),
              HasSubstr("over 2 x 1 ranks"));
}

TEST(PlanText, IsEqualForEqualPlansOnly) {
  EXPECT_EQ(full_shard().text(), full_shard().text());
  const std::vector<std::function<void(ShardPlan&)>> changes{
      [](auto& p) { p.weight_slots = 3; },
      [](auto& p) { p.grad_slots = 3; },
      [](auto& p) { p.groups.push_back(p.groups[0]); },
      [](auto& p) { p.groups[1][3] = 1; },
      [](auto& p) { p.units.pop_back(); },
      [](auto& p) { p.units[2].shard_group = 0; },
      [](auto& p) { p.units[2].replica_group = 1; },
      [](auto& p) { p.units[2].reshard_group = 0; },
      [](auto& p) { p.units[2].gather_at = GatherAt::after_update; },
      [](auto& p) { p.units[2].reduce_at = SyncAt::boundary; },
      [](auto& p) { p.units[2].replica_at = SyncAt::boundary; },
      [](auto& p) { p.units[2].prefetch = 2; },
      [](auto& p) { p.units[2].align = 16; }};
  std::vector<std::string> texts{full_shard().text()};
  for (auto& change : changes) {
    auto plan = full_shard();
    change(plan);
    EXPECT_THAT(texts, ::testing::Not(::testing::Contains(plan.text())));
    texts.push_back(plan.text());
  }
}

}  // namespace
}  // namespace shale

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
  for (auto& u : plan.units) u.shard_group = kWorldGroup, u.replica_group = kSelfGroup;  // pieces kept by pairs
  for (int pairs : {2, 3}) {
    for (auto& u : plan.units) u.reshard_group = pairs;
    EXPECT_NO_THROW(validate(plan, m, world_of(kWorld)));
  }
}

TEST(ValidatePlan, RefusesReshardGroupsThatAreNotInsideTheShardGroup) {
  EXPECT_THAT(refusal([](auto& p) {
                p.groups.push_back({0, 0, 1, 1}), p.groups.push_back({0, 1, 0, 1});
                for (auto& u : p.units) u = {}, u.shard_group = 2, u.replica_group = u.reshard_group = 3;
              }),
              HasSubstr("reshard group of unit embedding puts ranks 0 and 2 together, which are in different shard "
                        "groups; it must be a finer partition than the shard group"));
  EXPECT_THAT(refusal([](auto& p) {
                for (auto& u : p.units) u = {}, u.replica_group = u.reshard_group = kWorldGroup;
              }),
              HasSubstr("puts ranks 0 and 1 together"));
  EXPECT_THAT(refusal([](auto& p) {
                p.groups.push_back({0, 0, 0, 1});
                p.units[1].reshard_group = 2;
              }),
              HasSubstr("reshard group of unit layers.0 has parts of 3 and 1 ranks; all parts must be of one size"));
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
  EXPECT_THAT(refusal([](auto& p) { p.units[2].replica_at = SyncAt::never; }),
              HasSubstr("unit layers.1 never sums its replicas, but the strategy has no shale.sharding.outer/1"));
  EXPECT_THAT(refusal([](auto& p) { p.units[0].gather_at = GatherAt::after_update; }),
              HasSubstr("unit embedding is gathered after the update, so it must keep its weights"));
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

// Halves that train apart, brought together every 10 steps.
ShardPlan apart() {
  ShardPlan plan = full_shard();
  plan.groups.push_back({0, 0, 1, 1}), plan.groups.push_back({0, 1, 0, 1});
  for (auto& u : plan.units) {
    u.shard_group = u.reshard_group = 2, u.replica_group = 3;
    u.replica_at = SyncAt::never, u.outer_every = 10;
  }
  plan.own.outer = true;
  return plan;
}

std::string apart_refusal(const std::function<void(ShardPlan&)>& change) {
  auto plan = apart();
  change(plan);
  return error_text(Code::config, [&] { validate(plan, model(), world_of(kWorld)); });
}

TEST(ValidatePlan, ReplicasThatAreNeverSummed) {
  EXPECT_NO_THROW(validate(apart(), model(), world_of(kWorld)));
  EXPECT_THAT(apart_refusal([](auto& p) { p.own.outer = false; }), HasSubstr("no shale.sharding.outer/1"));
  EXPECT_THAT(apart_refusal([](auto& p) { p.units[1].outer_every = 0; }),
              HasSubstr("unit layers.0 never sums its replicas and has no outer work"));
  EXPECT_THAT(apart_refusal([](auto& p) { p.units[3].replica_at = SyncAt::boundary; }),
              HasSubstr("unit embedding never sums its replicas, but unit head does"));
  EXPECT_THAT(apart_refusal(
                  [](auto& p) { p.units[2].shard_group = p.units[2].reshard_group = 3, p.units[2].replica_group = 2; }),
              HasSubstr("units embedding and layers.1 have different shard groups"));
  EXPECT_THAT(apart_refusal([](auto& p) {
                p.units[2].shard_group = p.units[2].reshard_group = kWorldGroup, p.units[2].replica_group = kSelfGroup;
              }),
              HasSubstr("units embedding and layers.1 have different shard groups"));
  EXPECT_THAT(apart_refusal([](auto& p) { p.units[1].replica_group = kSelfGroup; }), HasSubstr("over 2 x 1 ranks"));
}

TEST(ValidatePlan, OuterWork) {
  EXPECT_THAT(refusal([](auto& p) { p.units[1].outer_every = 10; }),
              HasSubstr("unit layers.0 wants outer work every 10 steps, but the strategy has no"));
  EXPECT_THAT(apart_refusal([](auto& p) { p.units[1].outer_delay = 10; }),
              HasSubstr("unit layers.0 has outer_every 10, outer_offset 0, outer_delay 10"));
  EXPECT_THAT(apart_refusal([](auto& p) { p.units[1].outer_offset = -1; }), HasSubstr("outer_offset -1"));
  EXPECT_THAT(refusal([](auto& p) { p.units[1].scratch_bytes = -1; }), HasSubstr("scratch_bytes -1"));
  auto late = apart();
  late.units[1].outer_delay = 9;
  EXPECT_NO_THROW(validate(late, model(), world_of(kWorld)));
}

TEST(ValidatePlan, HooksThatTheEngineCannotServe) {
  EXPECT_THAT(refusal([](auto& p) { p.units[2].join = p.own.gather = true; }),
              HasSubstr("unit layers.1 is joined with the unit before it, but the strategy brings hooks"));
  auto plan = full_shard();
  for (auto& u : plan.units) u = {}, u.replica_group = kWorldGroup;
  plan.own.replicate = true;
  auto world = world_of(kWorld);
  EXPECT_NO_THROW(validate(plan, model(), world));
  world.micro_steps = 3;
  EXPECT_THAT(error_text(Code::config, [&] { validate(plan, model(), world); }),
              HasSubstr("unit embedding sums its replicas by a hook of the strategy at each of 3 micro-steps"));
  for (auto& u : plan.units) u.replica_at = SyncAt::boundary;
  EXPECT_NO_THROW(validate(plan, model(), world));
  plan = full_shard(), plan.own.replicate = true;  // nobody to sum with
  EXPECT_NO_THROW(validate(plan, model(), world));
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

// The bytes that are forecast are the bytes that the engine's groups count in a step.
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/engine/engine.h"
#include "core/plan/forecast.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/mini_model.h"

namespace shale {
namespace {

struct Case {
  int world = 2, micro_steps = 1, weight_slots = 0;
  std::string strategy = "full_shard";  // full_shard | keep | no_shard | hybrid
  SyncAt reduce_at = SyncAt::micro_step, replica_at = SyncAt::boundary;
  ParameterPrecision row = {};
};

ShardPlan make_plan(const Case& c, std::size_t units) {
  ShardPlan plan;
  plan.groups = {self_partition(c.world), world_partition(c.world)};
  plan.weight_slots = c.weight_slots;
  UnitPlan u;
  u.reduce_at = c.reduce_at, u.replica_at = c.replica_at;
  if (c.strategy == "no_shard") u.replica_group = kWorldGroup;
  if (c.strategy == "full_shard") u.shard_group = u.reshard_group = kWorldGroup;
  if (c.strategy == "keep") u.shard_group = kWorldGroup;
  if (c.strategy == "hybrid") {
    plan.groups.push_back({0, 0, 1, 1}), plan.groups.push_back({0, 1, 0, 1});
    u.shard_group = u.reshard_group = 2, u.replica_group = 3;
  }
  plan.units.assign(units, u);
  return plan;
}

void expect_traffic(const Case& c) {
  on_ranks(c.world, [&](World& world) {
    const auto model = mini_model({.layers = 5});
    const auto plan = make_plan(c, model.info.units.size());
    PrecisionTable table;
    for (auto& unit : model.info.units) table.units.emplace_back(unit.parameters.size(), c.row);
    const auto make = [&](const Partition& p, const std::string& n) { return world.group(p, n); };
    Engine engine(model, table, plan, make, {world.rank(), c.micro_steps});
    const auto weights = mini_weights(model);
    engine.initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
      return weights.at(p.name).flatten().narrow(0, begin, end - begin);
    });
    engine.begin_step();
    for (int m = 0; m < c.micro_steps; ++m) engine.forward_backward(mini_batch(m), 1, m + 1 == c.micro_steps);
    engine.end_step();

    Topology topology;
    topology.world = c.world, topology.micro_steps = c.micro_steps;
    const auto f = forecast(model, engine.memory(), plan, topology, {.micro_steps = c.micro_steps});
    const auto traffic = engine.traffic();
    EXPECT_EQ(f.gather_bytes, traffic[Op::all_gather].bytes);
    EXPECT_EQ(f.reduce_bytes, traffic[Op::reduce_scatter].bytes);
    // Each call rounds down.
    EXPECT_NEAR(f.replica_bytes, traffic[Op::all_reduce].bytes, traffic[Op::all_reduce].calls);
    EXPECT_GT(f.gather_bytes + f.reduce_bytes + f.replica_bytes, 0);
  });
}

TEST(ForecastTraffic, EqualsWhatTheEngineSends) {
  const auto f = at::kFloat, b = at::kBFloat16;
  for (auto strategy : {"full_shard", "keep", "no_shard"})
    for (int micro_steps : {1, 3})
      for (auto& row :
           {ParameterPrecision{}, ParameterPrecision{f, f, b, f, f, f, f}, ParameterPrecision{f, b, b, b, f, f, f}})
        for (auto reduce : {SyncAt::micro_step, SyncAt::boundary}) {
          SCOPED_TRACE(str(strategy, ", ", micro_steps, " micro-steps, gather ", c10::toString(row.gather)));
          expect_traffic({.micro_steps = micro_steps, .strategy = strategy, .reduce_at = reduce, .row = row});
        }
}

TEST(ForecastTraffic, CountsSlotsReplicasAndUnevenWorlds) {
  for (int slots : {2, 3, 4, 9}) {
    SCOPED_TRACE(str(slots, " slots"));
    expect_traffic({.micro_steps = 2, .weight_slots = slots});
  }
  expect_traffic({.world = 3});
  expect_traffic({.world = 3, .strategy = "no_shard"});
  expect_traffic({.world = 4, .micro_steps = 2, .strategy = "hybrid"});
  expect_traffic({.world = 4, .micro_steps = 2, .strategy = "hybrid", .replica_at = SyncAt::micro_step});
  expect_traffic({.micro_steps = 2, .strategy = "no_shard", .replica_at = SyncAt::micro_step});
}

}  // namespace
}  // namespace shale

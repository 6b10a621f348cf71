// The bytes that are forecast are the bytes that the engine's groups count in a step.
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/plan/forecast.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

// A step under way: gathers that follow an update belong to the step before them.
void expect_traffic(Case c, const ParameterPrecision& row = {}) {
  c.model.layers = 5;
  on_ranks(c.world, [&](World& world) {
    Trainer trainer(world, c, row);
    trainer.step(0);
    const auto before = trainer.engine->traffic();
    trainer.step(1);
    const auto after = trainer.engine->traffic();
    const auto bytes = [&](Op op) { return after[op].bytes - before[op].bytes; };

    Topology topology;
    topology.world = c.world, topology.micro_steps = c.micro_steps;
    const auto f =
        forecast(trainer.model, trainer.engine->memory(), trainer.plan, topology, {.micro_steps = c.micro_steps});
    EXPECT_EQ(f.gather_bytes, bytes(Op::all_gather));
    EXPECT_EQ(f.reduce_bytes, bytes(Op::reduce_scatter));
    // Each call rounds down.
    EXPECT_NEAR(f.replica_bytes, bytes(Op::all_reduce), after[Op::all_reduce].calls - before[Op::all_reduce].calls);
    EXPECT_GT(f.gather_bytes + f.reduce_bytes + f.replica_bytes, 0);
  });
}

TEST(ForecastTraffic, EqualsWhatTheEngineSends) {
  const auto f = at::kFloat, b = at::kBFloat16;
  for (auto strategy : kStrategies)
    for (int micro_steps : {1, 3})
      for (auto& row :
           {ParameterPrecision{}, ParameterPrecision{f, f, b, f, f, f, f}, ParameterPrecision{f, b, b, b, f, f, f}})
        for (auto reduce : {SyncAt::micro_step, SyncAt::boundary}) {
          SCOPED_TRACE(str(strategy, ", ", micro_steps, " micro-steps, gather ", c10::toString(row.gather)));
          expect_traffic({.micro_steps = micro_steps, .strategy = strategy, .reduce_at = reduce}, row);
        }
}

TEST(ForecastTraffic, CountsSlotsReplicasAndUnevenWorlds) {
  for (int slots : {2, 3, 4, 9}) {
    SCOPED_TRACE(str(slots, " slots"));
    expect_traffic({.micro_steps = 2, .weight_slots = slots});
  }
  for (int micro_steps : {1, 3}) {
    const Case c{.world = 4, .micro_steps = micro_steps, .strategy = "reshard", .weight_slots = micro_steps};
    SCOPED_TRACE(str("pieces kept by pairs, ", micro_steps, " micro-steps and slots"));
    expect_traffic(c);
    expect_traffic(c, {at::kFloat, at::kFloat, at::kBFloat16, at::kFloat, at::kFloat, at::kFloat, at::kFloat});
  }
  expect_traffic({.world = 3});
  expect_traffic({.world = 3, .strategy = "no_shard"});
  for (auto strategy : {"hybrid", "hybrid_keep", "no_shard"})
    for (auto reduce : {SyncAt::micro_step, SyncAt::boundary})
      for (auto replica : {SyncAt::micro_step, SyncAt::boundary}) {
        SCOPED_TRACE(str(strategy, ", reduce ", static_cast<int>(reduce), ", replicas ", static_cast<int>(replica)));
        expect_traffic(
            {.world = 4, .micro_steps = 2, .strategy = strategy, .reduce_at = reduce, .replica_at = replica});
      }
}

}  // namespace
}  // namespace shale

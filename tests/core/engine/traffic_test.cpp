// What a step sends, in units and in bytes, against the formulas of each strategy.
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

TEST(EngineTraffic, CountsGathersAndBytesAsTheFormulasSay) {
  on_ranks(2, [](World& world) {
    const int layers = 4;
    for (int slots : {2, 3}) {
      Case c{.world = 2, .weight_slots = slots, .model = {.layers = layers}};
      Trainer trainer(world, c);
      trainer.step(0);
      const auto counts = trainer.engine->counts();
      EXPECT_EQ(counts.gathers, 2 * layers - slots + 2);
      EXPECT_EQ(counts.reductions, layers + 2);
      std::int64_t gathered = 0, reduced = 0;
      const auto& units = trainer.engine->memory().units;
      for (std::size_t u = 0; u < units.size(); ++u) {
        const bool layer = u > 0 && u + 1 < units.size();
        const bool again = layer && static_cast<int>(u) - 1 < layers - slots;  // the last `slots` layers stay in place
        const auto bytes = units[u].flats.front().elements() * 8;
        gathered += bytes / 2 * (again ? 2 : 1), reduced += bytes / 2;
      }
      const auto traffic = trainer.engine->traffic();
      EXPECT_EQ(traffic[Op::all_gather].bytes, gathered);
      EXPECT_EQ(traffic[Op::reduce_scatter].bytes, reduced);
      EXPECT_EQ(traffic[Op::all_reduce].bytes, 0);
    }
    // A second micro-step finds what the backward left: 2 (L - k) gathers instead of 2 L - k.
    Case c{.world = 2, .micro_steps = 2, .weight_slots = 2, .model = {.layers = layers}};
    Trainer trainer(world, c);
    trainer.step(0);
    EXPECT_EQ(trainer.engine->counts().gathers, 2 * layers - 2 + 2 + 2 * (layers - 2));
    // Kept weights are gathered once a step, whatever the micro-steps.
    c.strategy = "keep", c.weight_slots = 0;
    Trainer keeps(world, c);
    keeps.step(0);
    EXPECT_EQ(keeps.engine->counts().gathers, layers + 2);
    // Replicas only: one all-reduce a flat at the boundary, nothing else.
    c.strategy = "no_shard";
    Trainer replicas(world, c);
    replicas.step(0);
    EXPECT_EQ(replicas.engine->counts().gathers, 0);
    EXPECT_EQ(replicas.engine->traffic()[Op::all_reduce].calls, layers + 2);
  });
}

struct Sent {
  std::int64_t gathers, reductions, replica_sums;  // of units
  std::int64_t gather_bytes, reduce_bytes, replica_bytes;
};

// What one step sends once the run is under way: gathers that follow an update belong to the step before them.
Sent sent_by_a_step(World& world, const Case& c) {
  Trainer trainer(world, c);
  trainer.step(0);
  const auto counts = trainer.engine->counts();
  const auto before = trainer.engine->traffic();
  trainer.step(1);
  const auto now = trainer.engine->counts();
  const auto after = trainer.engine->traffic();
  const auto bytes = [&](Op op) { return after[op].bytes - before[op].bytes; };
  return {now.gathers - counts.gathers,
          now.reductions - counts.reductions,
          after[Op::all_reduce].calls - before[Op::all_reduce].calls,
          bytes(Op::all_gather),
          bytes(Op::reduce_scatter),
          bytes(Op::all_reduce)};
}

// times: how often a step gathers, reduces and sums replicas of every unit.
void expect_sent(World& world, const Case& c, const Sent& times) {
  const int shard = c.strategy.starts_with("hybrid") ? 2 : c.world, replicas = c.world / shard;
  const auto model = mini_model(c.model);
  const auto memory =
      plan_memory(model.info, table_of(model.info, all(at::kDouble)), make_plan(c, model.info), 0, c.micro_steps);
  const auto units = static_cast<std::int64_t>(memory.units.size());
  std::int64_t bytes = 0;  // of the model, padding included
  for (auto& u : memory.units) bytes += u.flats.front().elements() * 8;
  const auto sent = sent_by_a_step(world, c);
  EXPECT_EQ(sent.gathers, times.gathers * units);
  EXPECT_EQ(sent.reductions, times.reductions * units);
  EXPECT_EQ(sent.replica_sums, times.replica_sums * units);
  EXPECT_EQ(sent.gather_bytes, times.gathers * bytes / shard * (shard - 1));
  EXPECT_EQ(sent.reduce_bytes, times.reductions * bytes / shard * (shard - 1));
  EXPECT_EQ(sent.replica_bytes, times.replica_sums * 2 * (bytes / shard) * (replicas - 1) / replicas);
}

// N ranks in shard groups of S, R replicas of them, M micro-steps, P bytes of a model in one format: weights that are
// kept cost (S-1)/S P a step, however they are gathered, and gradients that and 2 (R-1)/R P/S, times M if summed after
// each micro-step.
TEST(EngineTraffic, KeptWeightsAreSentOnceAStepAndGradientsWhenThePlanSays) {
  const auto now = SyncAt::micro_step, late = SyncAt::boundary;
  for (int m : {1, 3}) {
    SCOPED_TRACE(str(m, " micro-steps"));
    for (int world : {2, 3})
      on_ranks(world, [&](World& w) {
        for (auto strategy : {"keep", "after_update"}) {
          expect_sent(w, {.world = world, .micro_steps = m, .strategy = strategy, .reduce_at = now},
                      {1, m, 0, 0, 0, 0});
          expect_sent(w, {.world = world, .micro_steps = m, .strategy = strategy, .reduce_at = late},
                      {1, 1, 0, 0, 0, 0});
        }
      });
    on_ranks(4, [&](World& w) {
      Case c{.world = 4, .micro_steps = m, .strategy = "hybrid_keep"};
      expect_sent(w, c, {1, m, 1, 0, 0, 0});
      c.replica_at = now;
      expect_sent(w, c, {1, m, m, 0, 0, 0});
      c.reduce_at = late;
      expect_sent(w, c, {1, 1, 1, 0, 0, 0});
    });
  }
}

// P bytes of the L layers in k slots, N ranks, pieces kept by K of them: (N-1)/N of all layers and the ends once, and
// for each further gather (K-1)/K of it: L - k layers in the first backward, 2 (L - k) in every micro-step after it.
TEST(EngineTraffic, KeptPiecesMakeLaterGathersNarrow) {
  on_ranks(4, [](World& world) {
    const int layers = 5;
    for (int slots : {1, 3})
      for (int m : {1, 3}) {
        SCOPED_TRACE(str(slots, " slots, ", m, " micro-steps"));
        Case c{.world = 4, .micro_steps = m, .strategy = "reshard", .weight_slots = slots, .model = {.layers = layers}};
        const auto model = mini_model(c.model);
        const auto memory =
            plan_memory(model.info, table_of(model.info, all(at::kDouble)), make_plan(c, model.info), 0, m);
        std::int64_t whole = 0;
        for (auto& u : memory.units) whole += u.flats.front().elements() * 8;
        const auto layer = memory.units[1].flats.front().elements() * 8;
        const auto again = (layers - slots) * (1 + 2 * (m - 1));
        const auto sent = sent_by_a_step(world, c);
        EXPECT_EQ(sent.gathers, layers + 2 + again);
        EXPECT_EQ(sent.gather_bytes, whole * 3 / 4 + again * layer / 2);
      }
  });
}

TEST(EngineTraffic, HybridGathersInsideItsShardGroup) {
  on_ranks(4, [](World& world) {
    const int layers = 4;
    Case c{.world = 4, .strategy = "hybrid", .model = {.layers = layers}};
    EXPECT_EQ(sent_by_a_step(world, c).gathers, 2 * layers - 2 + 2);  // two slots for layers, one for each end
    c.weight_slots = layers;
    expect_sent(world, c, {1, 1, 1, 0, 0, 0});
  });
}

}  // namespace
}  // namespace shale

// The engine against one autograd graph over dense weights, for every shape a plan can take.
#include "core/engine/engine.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/cpu_pool.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

TEST(Engine, EqualsDenseTrainingForEveryStrategy) {
  for (auto strategy : kStrategies)
    for (int world : {1, 2, 3})
      for (bool checkpoint : {false, true}) {
        SCOPED_TRACE(str(strategy, " on ", world, " ranks, checkpointing ", checkpoint));
        expect_dense({.world = world, .strategy = strategy, .checkpoint = checkpoint});
      }
  for (auto strategy : {"hybrid", "hybrid_keep"})
    for (int world : {2, 4}) {
      SCOPED_TRACE(str(strategy, " on ", world, " ranks"));
      expect_dense({.world = world, .strategy = strategy});
    }
}

TEST(Engine, KeepsPiecesBetweenTheUsesOfAUnit) {
  for (auto strategy : {"reshard", "reshard_apart"})
    for (bool checkpoint : {false, true}) {
      SCOPED_TRACE(str(strategy, ", checkpointing ", checkpoint));
      Case c{.world = 4, .micro_steps = 3, .strategy = strategy, .checkpoint = checkpoint, .model = {.layers = 5}};
      expect_dense(c);
      c.micro_steps = 1, c.weight_slots = 1, c.prefetch = 2, c.align = 8;
      expect_dense(c);
    }
  Case c{.world = 4, .micro_steps = 2, .strategy = "reshard", .weight_slots = 1, .model = {.tied = true}};
  expect_dense(c);
  c.model = {.reused = true, .frozen = {"layer0.gate"}};
  expect_dense(c);
}

// Every gather after the first brings the very same weights, so nothing differs from gathering wide, also where they
// were rounded on the way; and an evaluation, which finds pieces or leaves them, changes nothing.
TEST(Engine, PiecesAreTheWeightsThatWereGathered) {
  const auto f = at::kFloat, b = at::kBFloat16;
  for (const auto& row : {ParameterPrecision{f, f, b, f, f, f, f}, ParameterPrecision{f, b, b, b, f, f, f}})
    on_ranks(4, [&](World& world) {
      Case c{.world = 4, .micro_steps = 3, .checkpoint = true, .model = {.layers = 4}};
      Trainer wide(world, c, row);
      c.strategy = "reshard";
      Trainer narrow(world, c, row);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(narrow.step(i), wide.step(i)) << "step " << i;
        EXPECT_EQ(narrow.engine->evaluate(mini_batch(50)), wide.engine->evaluate(mini_batch(50)));
      }
      EXPECT_EQ(apart(narrow.weights(), wide.weights()), 0);
      EXPECT_LT(narrow.engine->traffic()[Op::all_gather].bytes, wide.engine->traffic()[Op::all_gather].bytes);
    });
}

TEST(Engine, AccumulatesOverMicroSteps) {
  for (auto strategy : kStrategies)
    for (auto reduce : {SyncAt::micro_step, SyncAt::boundary}) {
      SCOPED_TRACE(str(strategy, " reduce at ", static_cast<int>(reduce)));
      expect_dense({.world = 2, .micro_steps = 3, .strategy = strategy, .reduce_at = reduce});
    }
  expect_dense({.world = 2, .micro_steps = 3, .strategy = "no_shard", .replica_at = SyncAt::micro_step});
  for (auto strategy : {"hybrid", "hybrid_keep"})
    for (auto reduce : {SyncAt::micro_step, SyncAt::boundary})
      for (auto replica : {SyncAt::micro_step, SyncAt::boundary}) {
        SCOPED_TRACE(str(strategy, ", reduce ", static_cast<int>(reduce), ", replicas ", static_cast<int>(replica)));
        expect_dense({.world = 4, .micro_steps = 3, .strategy = strategy, .reduce_at = reduce, .replica_at = replica});
      }
}

TEST(Engine, TakesAnyNumberOfSlotsAndAnyPrefetch) {
  for (int prefetch : {0, 1, 2, 5})
    for (int slots : {0, 1, 2, 3, 7}) {
      SCOPED_TRACE(str("prefetch ", prefetch, ", slots ", slots));
      expect_dense({.world = 2, .prefetch = prefetch, .weight_slots = slots, .model = {.layers = 5}});
    }
  expect_dense({.world = 2, .grad_slots = 1, .model = {.layers = 4}});
  expect_dense({.world = 3, .grad_slots = 9, .align = 32, .model = {.layers = 4}});
}

TEST(Engine, CarriesTiedAndReusedUnits) {
  for (auto strategy : kStrategies)
    for (bool checkpoint : {false, true})
      for (auto reduce : {SyncAt::micro_step, SyncAt::boundary}) {
        SCOPED_TRACE(str(strategy, ", checkpointing ", checkpoint, ", reduce ", static_cast<int>(reduce)));
        Case c{.world = 2, .micro_steps = 2, .strategy = strategy, .reduce_at = reduce, .checkpoint = checkpoint};
        c.model.tied = true;
        expect_dense(c);
        c.model.tied = false, c.model.reused = true;
        expect_dense(c);
      }
}

TEST(Engine, CarriesFrozenParameters) {
  const std::vector<std::vector<std::string>> cases{
      {"embed", "layer0.norm", "layer0.gate", "layer0.up", "layer0.down"},  // the input side, whole units
      {"layer1.gate", "layer2.norm"},                                       // parts of units
      {"norm", "head"},                                                     // the output side
      {"embed", "layer0.norm", "layer0.gate", "layer0.up", "layer0.down", "layer1.gate", "layer1.up", "layer1.down",
       "layer2.norm", "layer2.gate", "layer2.up", "layer2.down", "norm", "head"}};  // all but one vector (C13)
  for (auto& frozen : cases)
    for (auto strategy : {"full_shard", "no_shard"})
      for (bool checkpoint : {false, true}) {
        SCOPED_TRACE(str(strategy, ", ", frozen.size(), " frozen, first ", frozen.front(), ", ", checkpoint));
        expect_dense({.world = 2,
                      .micro_steps = 2,
                      .strategy = strategy,
                      .checkpoint = checkpoint,
                      .model = {.frozen = frozen}});
      }
}

TEST(Engine, CarriesFrozenTiedAndReusedUnits) {
  for (auto strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    Case c{.world = 2, .micro_steps = 2, .strategy = strategy};
    c.model = {.tied = true, .frozen = {"embed"}};
    expect_dense(c);
    c.model.frozen = {"layer0.norm", "layer0.gate", "layer0.up", "layer0.down", "norm"};
    expect_dense(c);
    c.model = {.reused = true, .frozen = {"embed", "layer1.up", "layer2.gate"}};
    expect_dense(c);
    c.model.frozen = {"embed", "layer0.norm", "layer0.gate", "layer0.up", "layer0.down"};  // the unit that runs twice
    expect_dense(c);
    c.checkpoint = true;
    expect_dense(c);
  }
}

// A gradient that nobody writes is zero, not what another unit left in the slot.
TEST(Engine, CarriesParametersThatAreNotUsed) {
  for (auto strategy : kStrategies)
    for (int micro_steps : {1, 2}) {
      SCOPED_TRACE(str(strategy, ", ", micro_steps, " micro-steps"));
      expect_dense({.world = 2, .micro_steps = micro_steps, .strategy = strategy, .model = {.unused = true}});
    }
}

// With two ranks: rank 0 alone computes with the unit, then none does, then rank 0 alone again.
TEST(Engine, CarriesAUnitThatOneRankDoesNotUse) {
  for (auto strategy : {"full_shard", "keep", "after_update", "no_shard"})
    for (int world : {2, 3})
      for (auto reduce : {SyncAt::micro_step, SyncAt::boundary})
        for (bool checkpoint : {false, true}) {
          SCOPED_TRACE(str(strategy, " on ", world, ", reduce ", static_cast<int>(reduce), ", ", checkpoint));
          Case c{.world = world, .strategy = strategy, .reduce_at = reduce, .checkpoint = checkpoint};
          c.model.branching = true;
          expect_dense(c);
          c.micro_steps = 2;
          expect_dense(c);
        }
}

TEST(Engine, EvaluationChangesNothing) {
  on_ranks(2, [](World& world) {
    Case c{.world = 2};
    Trainer with(world, c), without(world, c);
    for (int i = 0; i < kSteps; ++i) {
      with.engine->evaluate(mini_batch(100 + i));
      const double a = with.step(i);
      const double first = with.engine->evaluate(mini_batch(7));
      EXPECT_EQ(first, with.engine->evaluate(mini_batch(7)));
      EXPECT_EQ(a, without.step(i));
    }
    EXPECT_EQ(apart(with.weights(), without.weights()), 0);
  });
}

TEST(Engine, RunsTwiceBitwiseAlike) {
  on_ranks(2, [](World& world) {
    Case c{.world = 2, .micro_steps = 2};
    Trainer a(world, c, all(at::kFloat)), b(world, c, all(at::kFloat));
    for (int i = 0; i < kSteps; ++i) EXPECT_EQ(a.step(i), b.step(i));
    EXPECT_EQ(apart(a.weights(), b.weights()), 0);
  });
}

// bfloat16 has 8 bits: one rounding is 2^-9. Losses near ln 13 = 2.6 stay within a few roundings of the exact run.
TEST(Engine, Bfloat16StaysWithinItsRounding) {
  for (bool compute : {true, false})
    on_ranks(2, [&](World& world) {
      const auto low = at::kBFloat16, f = at::kFloat;
      const ParameterPrecision row =
          compute ? ParameterPrecision{f, low, low, low, f, f, f} : ParameterPrecision{f, f, low, f, f, f, f};
      for (int micro_steps : {1, 2}) {
        Case c{.world = 2, .micro_steps = micro_steps};
        Trainer trainer(world, c, row);
        const auto dense = train_dense(trainer.model, kSteps, 2 * micro_steps, kRate);
        for (int i = 0; i < kSteps; ++i) {
          const double loss = trainer.step(i);
          EXPECT_NEAR(loss, dense.losses[i], 0.03) << "step " << i;
          EXPECT_NE(static_cast<float>(loss), static_cast<float>(dense.losses[i])) << "nothing was rounded";
        }
      }
    });
}

// Weights travel as bfloat16 and are computed with in float32: they are rounded where nothing travels too, so that a
// run is the same for every world and strategy.
TEST(Engine, NarrowGathersRoundTheWeightsOfEveryWorldAndStrategyAlike) {
  const auto f = at::kFloat;
  const ParameterPrecision storage{f, f, at::kBFloat16, f, f, f, f}, exact = all(f);
  on_ranks(2, [&](World& world) {
    const auto one_rank = World::join(local_launch(1));
    Trainer full(world, {.world = 2}, storage), replicas(world, {.world = 2, .strategy = "no_shard"}, storage);
    Trainer alone(*one_rank, {.world = 1, .micro_steps = 2}, storage);
    Trainer unsharded(*one_rank, {.world = 1, .micro_steps = 2, .strategy = "no_shard"}, storage);
    Trainer wide(*one_rank, {.world = 1, .micro_steps = 2}, exact);
    for (int i = 0; i < kSteps; ++i) {
      const double loss = full.step(i), lone = alone.step(i);
      EXPECT_EQ(loss, replicas.step(i));
      EXPECT_EQ(lone, unsharded.step(i));
      // Two gradients are added up here, and one onto the other there: the same up to float32 rounding.
      EXPECT_NEAR(loss, lone, (i == 0 ? 1e-15 : 1e-6) * loss);
      EXPECT_GT(std::abs(wide.step(i) - lone), 1e-5) << "nothing was rounded";
    }
    for (auto* trainer : {&full, &replicas, &alone, &unsharded})
      for (auto& [name, t] : trainer->weights())
        EXPECT_TRUE(t.equal(t.to(at::kBFloat16).to(at::kDouble))) << name << " is not rounded";
    EXPECT_EQ(apart(full.weights(), replicas.weights()), 0);
    EXPECT_EQ(apart(alone.weights(), unsharded.weights()), 0);
  });
}

// After an error every slot and gradient is free again.
TEST(Engine, GoesOnAfterAnErrorInTheMiddle) {
  for (auto strategy : {"full_shard", "keep", "after_update", "no_shard", "reshard"})
    on_ranks(strategy == str("reshard") ? 4 : 2, [&](World& world) {
      Case c{.world = world.size(), .micro_steps = 2, .strategy = strategy};
      Trainer disturbed(world, c), straight(world, c);
      auto bad = mini_batch(0);
      bad.targets = bad.targets + 100;  // the head refuses them
      for (int i = 0; i < kSteps; ++i) {
        EXPECT_ANY_THROW(disturbed.engine->evaluate(bad));
        disturbed.engine->begin_step();
        disturbed.engine->forward_backward(mini_batch(5), 1, false);
        EXPECT_ANY_THROW(disturbed.engine->forward_backward(bad, 1, true));
        EXPECT_EQ(disturbed.step(i), straight.step(i)) << strategy;
      }
      EXPECT_EQ(apart(disturbed.weights(), straight.weights()), 0);
    });
}

// To the byte, and nothing stays behind a micro-step. Each case has processes of its own: a thread of the transport may
// let go of the last tensor it sent a moment later.
TEST(Engine, AllocatesWhatTheMemoryPlanSays) {
  const auto f = at::kFloat, b = at::kBFloat16;
  for (auto strategy : kStrategies)
    for (int micro_steps : {1, 2})
      for (const auto& row : {all(f), ParameterPrecision{f, b, b, b, f, f, f}, ParameterPrecision{f, f, b, f, f, f, f}})
        on_ranks(2, [&](World& world) {
          install_cpu_pool();
          const auto before = cpu_pool_counts().allocated;
          Trainer trainer(world, {.world = 2, .micro_steps = micro_steps, .strategy = strategy}, row);
          const auto planned = trainer.engine->memory().total();
          EXPECT_EQ(cpu_pool_counts().allocated - before, planned) << strategy << ", " << micro_steps;
          auto& engine = *trainer.engine;
          const auto batch = mini_batch(0);
          const auto held = cpu_pool_counts().allocated;
          engine.begin_step();
          for (int m = 1; m <= micro_steps; ++m) engine.forward_backward(batch, 1, m == micro_steps);
          engine.end_step();
          engine.evaluate(batch);
          EXPECT_EQ(cpu_pool_counts().allocated, held) << strategy << ", " << micro_steps;
        });
}

TEST(Engine, AllocatesTheKeptPiecesThatTheMemoryPlanSays) {
  const auto f = at::kFloat;
  for (auto wire : {f, at::kBFloat16})
    on_ranks(4, [&](World& world) {
      install_cpu_pool();
      const auto before = cpu_pool_counts().allocated;
      Trainer trainer(world, {.world = 4, .strategy = "reshard"}, ParameterPrecision{f, f, wire, f, f, f, f});
      EXPECT_GT(trainer.engine->memory().kept, 0);
      EXPECT_EQ(cpu_pool_counts().allocated - before, trainer.engine->memory().total());
      trainer.step(0);
    });
}

// The next forward finds all weights there or under way, and so does everything else until the next update.
TEST(Engine, GathersRightAfterTheUpdate) {
  on_ranks(2, [](World& world) {
    const Case c{.world = 2, .strategy = "after_update"};
    Trainer trainer(world, c);
    const auto units = static_cast<std::int64_t>(trainer.model.info.units.size());
    EXPECT_EQ(trainer.engine->memory().weight_slots.size(), static_cast<std::size_t>(units));
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_EQ(trainer.engine->counts().gathers, (i + 1) * units);
      trainer.engine->evaluate(mini_batch(100 + i));
      trainer.weights();
      EXPECT_EQ(trainer.engine->counts().gathers, (i + 1) * units);
      trainer.step(i);
    }
    Trainer on_use(world, {.world = 2, .strategy = "keep"});
    EXPECT_EQ(on_use.engine->counts().gathers, 0);
    for (int i = 0; i < kSteps; ++i) on_use.step(i);
    EXPECT_EQ(apart(trainer.weights(), on_use.weights()), 0);
  });
}

// Parameters of two formats are two flats of a unit: their reductions are added up side by side.
TEST(Engine, AccumulatesUnitsOfSeveralFormats) {
  on_ranks(4, [](World& world) {
    for (auto strategy : {"full_shard", "after_update", "hybrid", "hybrid_keep"})
      for (auto replica : {SyncAt::micro_step, SyncAt::boundary}) {
        SCOPED_TRACE(str(strategy, ", replicas ", static_cast<int>(replica)));
        const Case c{.world = 4, .micro_steps = 3, .strategy = strategy, .replica_at = replica};
        auto table = table_of(mini_model(c.model).info, all(at::kDouble));
        for (auto& unit : table.units) unit.back().gather = at::kFloat;  // rounds the weights
        Trainer mixed(world, c, table);
        const auto dense = train_dense(mixed.model, kSteps, c.world * c.micro_steps, kRate);
        for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(mixed.step(i), dense.losses[i], 1e-6) << "step " << i;
        EXPECT_EQ(mixed.engine->memory().units[1].flats.size(), 2u);
        EXPECT_LT(apart(mixed.weights(), dense.weights), 1e-6);
      }
  });
}

TEST(Engine, RefusesAModelThatCannotTrain) {
  on_ranks(1, [](World& world) {
    Case c{.world = 1};
    c.model.frozen = {"embed"};
    for (int i = 0; i < 3; ++i)
      for (auto name : {"norm", "gate", "up", "down"}) c.model.frozen.push_back(str("layer", i, ".", name));
    c.model.frozen.push_back("norm"), c.model.frozen.push_back("head");
    Trainer trainer(world, c);
    EXPECT_THROW(trainer.step(0), Error);
    EXPECT_GT(trainer.engine->evaluate(mini_batch(0)), 0);
  });
}

TEST(Engine, ALossScaleBeyondFloat32IsRefused) {
  on_ranks(1, [](World& world) {
    Trainer trainer(world, {.world = 1}, all(at::kFloat));
    trainer.engine->begin_step(1, 0x1p140);
    try {
      trainer.engine->forward_backward(mini_batch(0), 0x1p130, true);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::config);
      EXPECT_NE(std::string(e.what()).find("beyond the range of float32"), std::string::npos) << e.what();
    }
  });
}

}  // namespace
}  // namespace shale

// What the engine orders between its streams is all that is needed on a device where they run beside each other. The
// streams are modelled (stream_model.h), so no GPU is needed to see a race.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/engine/engine.h"
#include "core/engine/join.h"
#include "tests/core/engine/mini_model.h"
#include "tests/core/engine/stream_model.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

using Omit = StreamModel::Omit;

// Tells the model of streams what a unit reads and writes, forward and when its backward runs.
UnitForward watched(StreamModel& m, UnitForward forward, const std::string& name) {
  return [&m, forward, name](const ModelInput& input, std::span<Weight> weights, const at::Tensor& x) {
    for (auto& w : weights) m.reads(w.value, "forward of " + name);
    const auto out = forward(input, weights, x);
    if (!out.requires_grad()) return out;
    out.register_hook([&m, weights, name](const at::Tensor&) {
      for (auto& w : weights) {
        m.reads(w.value, "backward of " + name);
        if (!w.frozen) m.writes(w.grad, "gradients of " + name);
      }
    });
    return out;
  };
}

struct Races {
  std::vector<std::string> found;
  std::int64_t uses = 0;
  std::vector<double> losses;
};

Races race(const Case& c, const ParameterPrecision& row, Omit omit = Omit::nothing) {
  StreamModel streams(omit);
  auto model = mini_model(c.model);
  for (std::size_t i = 0; i < model.forward.size(); ++i)
    model.forward[i] = watched(streams, model.forward[i], model.info.units[i].name);
  auto plan = make_plan(c, model.info);
  auto table = table_of(model.info, row);
  join_units(model, table, plan);
  std::vector<at::Tensor> masters;
  EngineOptions options;
  options.micro_steps = c.micro_steps, options.checkpoint_layers = c.checkpoint, options.streams = &streams;
  Engine engine(
      model, table, plan,
      [&](const Partition& p, const std::string& name) {
        return modelled_group(streams, static_cast<int>(members(p, 0).size()), &masters, name);
      },
      options);
  for (auto& s : engine.shards()) masters.push_back(s.master);
  const auto weights = mini_weights(model);
  const auto values = [&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    for (auto& m : masters) streams.writes(m, "initialise");
    return weights.at(p.name).flatten().narrow(0, begin, end - begin);
  };
  engine.initialise(values);
  engine.initialise(values);  // as a snapshot that is read while the first gathers are under way
  Races r;
  for (int step = 0; step < 3; ++step) {
    engine.begin_step();
    for (int m = 0; m < c.micro_steps; ++m)
      r.losses.push_back(engine.forward_backward(mini_batch(step + m), 0.01, m + 1 == c.micro_steps));
    engine.end_step();
    at::NoGradGuard off;
    for (auto& s : engine.shards()) {
      if (!s.grad.defined()) continue;
      streams.reads(s.grad, "optimizer"), streams.writes(s.master, "optimizer");
      s.master.sub_(s.grad, kRate);
    }
    engine.weights_changed();
    r.losses.push_back(engine.evaluate(mini_batch(90 + step)));
  }
  EXPECT_EQ(streams.current(), Stream::compute);
  r.found = streams.races(), r.uses = streams.uses();
  return r;
}

ParameterPrecision narrow_wire() {
  return {at::kDouble, at::kDouble, at::kFloat, at::kDouble, at::kFloat, at::kDouble, at::kDouble};
}

void expect_no_race(const Case& c, const ParameterPrecision& row = all(at::kDouble)) {
  const auto r = race(c, row);
  EXPECT_GT(r.uses, 100);
  EXPECT_EQ(r.found, std::vector<std::string>{});
}

TEST(Streams, RunBesideEachOtherWithoutARace) {
  for (auto strategy : kStrategies)
    for (int micro_steps : {1, 3})
      for (bool checkpoint : {false, true}) {
        SCOPED_TRACE(str(strategy, ", ", micro_steps, " micro-steps, checkpointing ", checkpoint));
        Case c{.world = 2, .micro_steps = micro_steps, .strategy = strategy, .checkpoint = checkpoint};
        c.model.layers = 5;
        expect_no_race(c), expect_no_race(c, narrow_wire());
        c.reduce_at = SyncAt::boundary;
        expect_no_race(c);
      }
}

TEST(Streams, TakeAnyNumberOfSlots) {
  for (int prefetch : {0, 1, 3})
    for (int slots : {1, 2, 3})
      for (int grad_slots : {1, 2, 4}) {
        SCOPED_TRACE(str("prefetch ", prefetch, ", slots ", slots, " and ", grad_slots));
        Case c{.world = 2, .prefetch = prefetch, .weight_slots = slots, .grad_slots = grad_slots};
        c.model.layers = 6;
        expect_no_race(c);
      }
}

// Pieces of gathered weights kept by pairs, and shards of two with replicas of two.
TEST(Streams, CarryKeptPiecesAndReplicas) {
  for (auto [strategy, world] : {std::pair{"reshard", 4}, {"hybrid", 4}, {"hybrid_keep", 4}})
    for (auto replica_at : {SyncAt::micro_step, SyncAt::boundary}) {
      SCOPED_TRACE(str(strategy, ", replicas at ", static_cast<int>(replica_at)));
      Case c{.world = world, .micro_steps = 2, .strategy = strategy, .replica_at = replica_at};
      c.model.layers = 5;
      expect_no_race(c), expect_no_race(c, narrow_wire());
      c.reduce_at = SyncAt::boundary;
      expect_no_race(c);
    }
}

TEST(Streams, CarryJoinedUnits) {
  Case c{.world = 2, .micro_steps = 2, .join = 2};
  c.model.layers = 5;
  expect_no_race(c);
}

TEST(Streams, CarryTiedAndReusedUnits) {
  Case c{.world = 2, .micro_steps = 2};
  c.model.tied = true;
  expect_no_race(c);
  c.model.tied = false, c.model.reused = true;
  expect_no_race(c);
}

TEST(Streams, ChangeNoNumber) {
  Case c{.world = 2, .micro_steps = 2};
  EXPECT_EQ(race(c, all(at::kDouble)).losses, race(c, all(at::kDouble), Omit::event).losses);
}

// None of the orders is there for nothing, and the test would see it missing.
TEST(Streams, NeedEveryOrder) {
  Case c{.world = 2, .micro_steps = 2};
  c.model.layers = 5;
  for (auto omit : {Omit::event, Omit::gather_to_compute, Omit::compute_to_gather, Omit::compute_to_reduce,
                    Omit::reduce_to_compute})
    EXPECT_FALSE(race(c, all(at::kDouble), omit).found.empty()) << "without order " << static_cast<int>(omit);
}

}  // namespace
}  // namespace shale

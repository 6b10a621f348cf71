#include "core/plan/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/join.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

Architecture small() {
  Architecture a;
  a.vocab_size = 97, a.dim = 24, a.n_layers = 3, a.n_heads = 4, a.n_kv_heads = 2, a.head_dim = 6, a.ffn_dim = 57;
  return a;
}

struct Case {
  Architecture architecture = small();
  int world = 2;
  ParameterPrecision row = {};
  Workload work{.micro_batch = 2, .seq_len = 64};
  bool cuda = false;
};

MemoryPlan memory_of(const Case& c, const ModelInfo& info, ShardPlan& plan) {
  plan.groups = {self_partition(c.world), world_partition(c.world)};
  UnitPlan u;
  u.shard_group = u.reshard_group = kWorldGroup;
  plan.units.assign(info.units.size(), u);
  PrecisionTable table;
  for (auto& unit : info.units) table.units.emplace_back(unit.parameters.size(), c.row);
  return plan_memory(info, table, plan, 0, c.work.micro_steps);
}

Forecast forecast_of(const Case& c) {
  const auto model = make_model(c.architecture, {}, c.work.seq_len);
  ShardPlan plan;
  const auto memory = memory_of(c, model.info, plan);
  Topology topology;
  topology.world = c.world, topology.cuda = c.cuda;
  return forecast(model, memory, plan, topology, c.work);
}

TEST(Forecast, ReplicasThatTrainApartSendNothing) {
  const auto model = make_model(small(), {}, 64);
  ShardPlan plan;
  plan.groups = {self_partition(2), world_partition(2)};
  plan.units.resize(model.info.units.size());
  for (auto& u : plan.units) u.replica_group = kWorldGroup;
  PrecisionTable table;
  for (auto& unit : model.info.units) table.units.emplace_back(unit.parameters.size(), ParameterPrecision{});
  const auto told = [&] {
    Topology topology;
    topology.world = 2;
    return forecast(model, plan_memory(model.info, table, plan, 0, 1), plan, topology, {});
  };
  EXPECT_GT(told().replica_bytes, 0);
  EXPECT_THAT(describe(told()), HasSubstr("; it will send"));
  for (auto& u : plan.units) u.replica_at = SyncAt::never;
  plan.own.outer = true;
  EXPECT_EQ(told().sent(), 0);
  EXPECT_THAT(describe(told()), HasSubstr("without the strategy's own exchanges it would send 0 B a step"));
}

TEST(Forecast, TakesTheMemoryPlanAsItIs) {
  for (int world : {1, 2, 3}) {
    const Case c{.world = world, .work = {.micro_steps = 2}};
    ShardPlan plan;
    const auto memory = memory_of(c, describe(c.architecture), plan);
    const auto f = forecast_of(c);
    EXPECT_EQ(f.masters, memory.masters);
    EXPECT_EQ(f.moments, memory.moments);
    EXPECT_EQ(f.grad_shards, memory.grad_shards);
    EXPECT_EQ(f.slots, memory.slots());
    EXPECT_EQ(f.grad_slots, memory.grads());
    EXPECT_EQ(f.tensors(), memory.total() + f.activations);
    EXPECT_EQ(f.total(), f.tensors() + f.process);
  }
}

TEST(Forecast, ActivationsGrowWithTheTokensOfAMicroStep) {
  for (bool checkpoint : {false, true}) {
    const auto activations = [&](std::int64_t rows, std::int64_t length) {
      Case c;
      c.work = {.micro_batch = rows, .seq_len = length, .micro_steps = 4, .checkpoint_layers = checkpoint};
      return forecast_of(c).activations;
    };
    const auto one = activations(1, 64);
    EXPECT_GT(one, 0);
    EXPECT_EQ(activations(3, 64), 3 * one);
    EXPECT_EQ(activations(1, 192), 3 * one);
    EXPECT_EQ(activations(8, 8), one);
  }
}

TEST(Forecast, ActivationsGrowWithTheLayersAndLessSoWithCheckpointing) {
  const auto activations = [](std::int64_t layers, bool checkpoint) {
    Case c;
    c.architecture.n_layers = layers, c.work.checkpoint_layers = checkpoint;
    return forecast_of(c).activations;
  };
  const auto kept = activations(5, false) - activations(4, false);
  EXPECT_GT(kept, 0);
  EXPECT_EQ(activations(40, false), activations(4, false) + 36 * kept);
  // A checkpointed layer keeps its input: one number per token and column.
  EXPECT_EQ(activations(5, true) - activations(4, true), 2 * 64 * 24 * 4);
  EXPECT_LT(activations(4, true), activations(4, false));
}

// A checkpointed pair keeps one input instead of two, and is run again at once: both layers' tensors are there.
TEST(Forecast, JoinedLayersAreRecomputedTogether) {
  const auto activations = [](bool checkpoint, bool join) {
    Case c;
    c.architecture.n_layers = 40;
    c.work.checkpoint_layers = checkpoint;
    auto model = make_model(c.architecture, {}, c.work.seq_len);
    ShardPlan plan;
    memory_of(c, model.info, plan);
    PrecisionTable table;
    for (auto& unit : model.info.units) table.units.emplace_back(unit.parameters.size(), c.row);
    for (std::size_t i = 2; join && i < 41; i += 2) plan.units[i].join = true;
    join_units(model, table, plan);
    return forecast(model, plan_memory(model.info, table, plan, 0, 1), plan, Topology{.world = 2}, c.work).activations;
  };
  EXPECT_EQ(activations(false, true), activations(false, false));
  Case c;
  const auto four = forecast_of(c).activations;
  c.architecture.n_layers += 1;
  const auto layer = forecast_of(c).activations - four;
  c.architecture.n_layers += 1;
  EXPECT_EQ(forecast_of(c).activations - four, 2 * layer);
  EXPECT_EQ(activations(true, true) - activations(true, false), layer - 20 * 2 * 64 * 24 * 4);
}

TEST(Forecast, ActivationsFollowTheComputeType) {
  const auto activations = [](at::ScalarType compute) {
    Case c;
    c.architecture.n_layers = 40;  // the layers outweigh the logits, which are float32 at least
    c.row.compute = c.row.gather = c.row.grad = compute;
    return forecast_of(c).activations;
  };
  EXPECT_LT(activations(at::kBFloat16), activations(at::kFloat) * 6 / 10);
}

TEST(Forecast, AWideVocabularyCosts) {
  Case c;
  const auto narrow = forecast_of(c).activations;
  c.architecture.vocab_size += 1000;
  // The logits, in float32, of every token.
  EXPECT_GE(forecast_of(c).activations - narrow, 0);
  c.architecture.vocab_size += 100000;
  const auto wide = forecast_of(c).activations;
  c.architecture.vocab_size += 1000;
  EXPECT_EQ(forecast_of(c).activations - wide, 2 * 64 * 1000 * 4);
}

TEST(Forecast, AddsTheProcessAsItIs) {
  Case c;
  c.work.process = 123'456;
  EXPECT_EQ(forecast_of(c).process, 123'456);
  EXPECT_EQ(forecast_of(c).total(), forecast_of(c).tensors() + 123'456);
}

TEST(Forecast, SaysWhatItTakesInOneLine) {
  Forecast f;
  f.masters = 10 << 20, f.moments = 20 << 20, f.grad_shards = 11 << 20, f.slots = 12 << 20, f.grad_slots = 13 << 20;
  f.activations = 1024 << 20, f.process = 150 << 20;
  const auto text = describe(f);
  EXPECT_THAT(text,
              HasSubstr("a rank will take 1.2 GiB: masters 10.0 MiB, moments 20.0 MiB, gradient shards 11.0 MiB, "
                        "weight slots 12.0 MiB, gradient slots 13.0 MiB, activations 1.0 GiB, process 150.0 MiB"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("kept"), std::string::npos);
  f.kept = 5 << 20;
  EXPECT_THAT(describe(f), HasSubstr("gradient slots 13.0 MiB, kept pieces 5.0 MiB, activations"));
}

}  // namespace
}  // namespace shale

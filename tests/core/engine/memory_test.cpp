// The memory plan: exact for what is allocated, and what turns and pins cost.
#include "core/engine/memory.h"

#include <gtest/gtest.h>

#include "tests/core/engine/mini_model.h"

namespace shale {
namespace {

ShardPlan full_shard(int world, std::size_t units) {
  ShardPlan plan;
  plan.groups = {self_partition(world), world_partition(world)};
  UnitPlan u;
  u.shard_group = u.reshard_group = kWorldGroup;
  plan.units.assign(units, u);
  return plan;
}

PrecisionTable table_of(const ModelInfo& model, const ParameterPrecision& row = {}) {
  PrecisionTable t;
  for (auto& unit : model.units) t.units.emplace_back(unit.parameters.size(), row);
  return t;
}

TEST(MemoryPlan, RanksOwnEveryElementOnce) {
  const auto model = mini_model({});
  for (int world : {1, 2, 3, 5, 40}) {
    const auto plan = full_shard(world, model.info.units.size());
    std::int64_t masters = 0;
    for (int rank = 0; rank < world; ++rank)
      masters += plan_memory(model.info, table_of(model.info), plan, rank, 1).masters;
    EXPECT_EQ(masters, model.info.numel() * 4) << world << " ranks";
  }
}

TEST(MemoryPlan, LayersTakeTurns) {
  const auto model = mini_model({.layers = 6});
  auto plan = full_shard(2, model.info.units.size());
  const auto two = plan_memory(model.info, table_of(model.info), plan, 0, 1);
  EXPECT_EQ(two.weight_slots.size(), 4u);  // two for layers, embedding, head
  EXPECT_EQ(two.grad_slots.size(), 3u);    // two for layers, one for the wide units
  plan.weight_slots = 3, plan.grad_slots = 4;
  const auto more = plan_memory(model.info, table_of(model.info), plan, 0, 1);
  EXPECT_EQ(more.weight_slots.size(), 5u);
  EXPECT_EQ(more.grad_slots.size(), 5u);
  EXPECT_EQ(more.units[1].weight_slot, more.units[4].weight_slot);
  EXPECT_NE(more.units[1].weight_slot, more.units[2].weight_slot);
}

TEST(MemoryPlan, OneRankComputesWithItsMasters) {
  const auto model = mini_model({});
  const auto m = plan_memory(model.info, table_of(model.info), full_shard(1, model.info.units.size()), 0, 3);
  EXPECT_EQ(m.slots(), 0);
  EXPECT_EQ(m.grads(), 0);
  EXPECT_EQ(m.total(), model.info.numel() * 16);
}

TEST(MemoryPlan, MixedDtypesMakeFlatsOfTheirOwn) {
  const auto model = mini_model({.frozen = {"layer0.up"}});
  auto table = table_of(model.info);
  for (auto& row : table.units[1]) row.compute = row.gather = row.grad = at::kBFloat16;
  table.units[1][0] = {};  // the norm stays float32
  const auto m = plan_memory(model.info, table, full_shard(2, model.info.units.size()), 0, 1);
  ASSERT_EQ(m.units[1].flats.size(), 3u);
  EXPECT_EQ(m.units[1].flats[0].layout.parameters, (std::vector<int>{0}));
  EXPECT_EQ(m.units[1].flats[1].layout.parameters, (std::vector<int>{1, 3}));
  EXPECT_EQ(m.units[1].flats[2].layout.parameters, (std::vector<int>{2}));
  EXPECT_TRUE(m.units[1].flats[2].layout.frozen);
  for (auto& f : m.units[1].flats) EXPECT_EQ(f.weight_offset % 64, 0);
}

// Pieces are kept of units that are gathered again: layers that share a slot. A unit that runs twice stays whole.
TEST(MemoryPlan, KeepsPiecesOfWhatIsGatheredAgain) {
  auto model = mini_model({.layers = 4});
  auto plan = full_shard(6, model.info.units.size());
  plan.groups.push_back({0, 0, 1, 1, 2, 2});
  for (auto& u : plan.units) u.reshard_group = 2, u.align = 4;
  auto table = table_of(model.info, {at::kFloat, at::kBFloat16, at::kBFloat16});
  for (int rank = 0; rank < 6; ++rank) {
    const auto m = plan_memory(model.info, table, plan, rank, 1);
    std::int64_t kept = 0;
    for (auto& unit : m.units)
      for (auto& f : unit.flats) {
        const bool layer = model.info.units[f.layout.unit].kind == UnitKind::layer;
        EXPECT_EQ(f.kept(), layer ? f.range.chunk * 6 / 2 : 0);
        if (layer) {
          EXPECT_EQ(f.kept_position, rank % 2);
        }
        kept += f.kept() * 2;
      }
    EXPECT_EQ(m.kept, kept);
    EXPECT_EQ(m.weight_slots.size(), 4u);
    EXPECT_EQ(m.total(), m.masters + m.moments + m.grad_shards + m.kept + m.slots() + m.grads());
  }
  plan.weight_slots = 4;  // nobody shares
  EXPECT_EQ(plan_memory(model.info, table, plan, 0, 1).kept, 0);
  plan.weight_slots = 2;
  model = mini_model({.layers = 4, .reused = true});
  const auto m = plan_memory(model.info, table, plan, 0, 1);
  EXPECT_EQ(m.units[1].flats.front().kept(), 0);
  EXPECT_EQ(m.weight_slots[m.units[1].weight_slot], m.weight_slots[m.units[2].weight_slot]);
  EXPECT_NE(m.units[1].weight_slot, m.units[3].weight_slot);
  EXPECT_GT(m.units[2].flats.front().kept(), 0);
}

TEST(MemoryPlan, AccumulationCostsASum) {
  const auto model = mini_model({});
  auto plan = full_shard(2, model.info.units.size());
  const auto one = plan_memory(model.info, table_of(model.info), plan, 0, 1);
  const auto three = plan_memory(model.info, table_of(model.info), plan, 0, 3);
  EXPECT_EQ(one.grad_slots.front().sum, 0);
  EXPECT_GT(three.grad_slots.front().sum, 0);
  for (auto& u : plan.units) u.reduce_at = SyncAt::boundary;
  EXPECT_EQ(plan_memory(model.info, table_of(model.info), plan, 0, 3).grad_slots.size(), model.info.units.size());
}

}  // namespace
}  // namespace shale

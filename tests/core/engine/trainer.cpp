#include "tests/core/engine/trainer.h"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "core/engine/join.h"
#include "tests/core/comm/ranks.h"

namespace shale {

ShardPlan make_plan(const Case& c, const ModelInfo& model) {
  ShardPlan plan;
  plan.groups = {self_partition(c.world), world_partition(c.world)};
  plan.weight_slots = c.weight_slots, plan.grad_slots = c.grad_slots;
  UnitPlan u;
  u.prefetch = c.prefetch, u.align = c.align, u.reduce_at = c.reduce_at, u.replica_at = c.replica_at;
  if (c.strategy == "no_shard") u.replica_group = kWorldGroup;
  if (c.strategy == "full_shard") u.shard_group = u.reshard_group = kWorldGroup;
  if (c.strategy == "keep" || c.strategy == "after_update") u.shard_group = kWorldGroup;
  if (c.strategy == "after_update") u.gather_at = GatherAt::after_update;
  if (c.strategy == "hybrid" || c.strategy == "hybrid_keep") {
    Partition node(c.world), across(c.world);
    for (int r = 0; r < c.world; ++r) node[r] = r / 2, across[r] = r % 2;
    plan.groups.push_back(node), plan.groups.push_back(across);
    u.shard_group = 2, u.replica_group = 3;
    u.reshard_group = c.strategy == "hybrid" ? u.shard_group : kSelfGroup;
  }
  if (c.strategy.starts_with("reshard")) {  // pieces are kept by neighbours, or by ranks that lie apart
    Partition pairs(c.world);
    for (int r = 0; r < c.world; ++r) pairs[r] = c.strategy == "reshard" ? r / 2 : r % (c.world / 2);
    plan.groups.push_back(pairs);
    u.shard_group = kWorldGroup, u.reshard_group = 2;
  }
  plan.units.assign(model.units.size(), u);
  for (std::size_t i = 1; i + 1 < model.units.size(); ++i) plan.units[i].join = (i - 1) % c.join != 0;
  if (c.change) c.change(plan);
  return plan;
}

PrecisionTable table_of(const ModelInfo& model, const ParameterPrecision& row) {
  PrecisionTable t;
  for (auto& unit : model.units) t.units.emplace_back(unit.parameters.size(), row);
  return t;
}

ParameterPrecision all(at::ScalarType t) { return {t, t, t, t, t, t, t}; }

Trainer::Trainer(World& world, const Case& c, const ParameterPrecision& row)
    : Trainer(world, c, table_of(mini_model(c.model).info, row)) {}

Trainer::Trainer(World& w, const Case& of, const PrecisionTable& rows, const GroupMaker& groups)
    : world(w), c(of), model(mini_model(c.model)), plan(make_plan(c, model.info)), table(rows) {
  validate(table, model.info);
  Topology topology;
  topology.world = world.size();
  validate(plan, model.info, topology);
  join_units(model, table, plan);
  engine = std::make_unique<Engine>(
      model, table, plan, groups ? groups : [&](const Partition& p, const std::string& n) { return world.group(p, n); },
      EngineOptions{world.rank(), c.micro_steps, c.checkpoint, at::kCPU, c.hooks});
  const auto weights = mini_weights(model);
  engine->initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    return weights.at(p.name).flatten().narrow(0, begin, end - begin);
  });
}

double Trainer::step(int index, const std::function<void()>& before_update) {
  const int per_step = world.size() * c.micro_steps;
  double tokens = 0, loss = 0;
  for (int k = 0; k < per_step; ++k) tokens += static_cast<double>(mini_batch(index * per_step + k).n_targets);
  engine->begin_step(index + 1);
  for (int m = 0; m < c.micro_steps; ++m)
    loss += engine->forward_backward(mini_batch(index * per_step + m * world.size() + world.rank()), 1 / tokens,
                                     m + 1 == c.micro_steps);
  engine->end_step();
  before_update();
  at::NoGradGuard off;
  engine->conclude(false);
  for (auto& s : engine->shards())
    if (s.grad.defined()) s.master.sub_(s.grad, kRate);
  engine->outer_step();
  engine->weights_changed();
  return all_reduce(world.everyone(), loss, Reduction::sum) / tokens;
}

Parameters Trainer::weights() {
  Parameters out;
  engine->each_parameter([&](const ParameterInfo& p, const at::Tensor& t) { out[p.name] = t.to(at::kDouble).clone(); });
  return out;
}

double apart(const Parameters& a, const Parameters& b) {
  double worst = 0;
  for (auto& [name, t] : b) worst = std::max(worst, (a.at(name) - t).abs().max().item<double>());
  return worst;
}

void expect_dense(const Case& c) {
  on_ranks(c.world, [&](World& world) {
    Trainer trainer(world, c);
    const auto dense = train_dense(trainer.model, kSteps, c.world * c.micro_steps, kRate);
    for (int i = 0; i < kSteps; ++i) {
      const double loss = trainer.step(i);
      EXPECT_NEAR(loss, dense.losses[i], 1e-12 * std::abs(dense.losses[i])) << "step " << i;
    }
    EXPECT_LT(apart(trainer.weights(), dense.weights), 1e-12);
  });
}

}  // namespace shale

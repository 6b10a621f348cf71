// Trains the mini model with the engine under a plan made by hand, and holds it against dense training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/comm/world.h"
#include "core/engine/engine.h"
#include "tests/core/engine/mini_model.h"

namespace shale {

inline constexpr int kSteps = 3;
inline constexpr double kRate = 0.05;

// Strategies that any world can take; hybrid and hybrid_keep (shard groups of two), reshard and reshard_apart (pieces
// of gathered weights kept by pairs) need an even one.
inline constexpr const char* kStrategies[] = {"full_shard", "keep", "after_update", "no_shard"};

struct Case {
  int world = 2, micro_steps = 1;
  std::string strategy = "full_shard";
  SyncAt reduce_at = SyncAt::micro_step, replica_at = SyncAt::boundary;
  int prefetch = 1, weight_slots = 0, grad_slots = 0;
  std::int64_t align = 1;
  bool checkpoint = false;
  int join = 1;  // layers that make one unit
  MiniOptions model = {};
  std::function<void(ShardPlan&)> change = {};  // the last word on the plan
  HookOptions hooks = {};
};

ShardPlan make_plan(const Case&, const ModelInfo&);
PrecisionTable table_of(const ModelInfo&, const ParameterPrecision& row);  // the same for every parameter
ParameterPrecision all(at::ScalarType);

struct Trainer {
  Trainer(World&, const Case&, const ParameterPrecision& row = all(at::kDouble));
  Trainer(World&, const Case&, const PrecisionTable&, const GroupMaker& = {});
  // The mean loss over all ranks. before_update is called when gradients are in the shards.
  double step(
      int index, const std::function<void()>& before_update = [] {});
  Parameters weights();

  World& world;
  Case c;
  Model model;
  ShardPlan plan;
  PrecisionTable table;
  std::unique_ptr<Engine> engine;
};

double apart(const Parameters& a, const Parameters& b);  // the largest difference
// Losses and final weights of kSteps steps are those of dense training.
void expect_dense(const Case&);

}  // namespace shale

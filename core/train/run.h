// Everything a run holds while it goes, made once by prepare(). Values and owners; one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/comm/world.h"
#include "core/config/config.h"
#include "core/data/source.h"
#include "core/device/device.h"
#include "core/engine/engine.h"
#include "core/loader/plugins.h"
#include "core/model/model.h"
#include "core/offload/policy.h"
#include "core/optim/adamw.h"
#include "core/optim/schedule.h"
#include "core/plan/forecast.h"
#include "core/precision/loss_scale.h"

namespace shale {

// What cli/ wires together before a run; all of it outlives the run.
struct Surroundings {
  const Config& config;
  const Log& log;
  World& world;
  Plugins& plugins;
  ComputeDevice& device;
  GroupMaker make_group;                           // groups of the device's kind
  std::atomic<std::int64_t>* step_told = nullptr;  // where the step under way is left for the launcher, or null
};

struct Plans {
  Topology topology;
  PrecisionTable precision;
  ShardPlan sharding;
  OffloadPlan offload;
};

// How far the run is: with the weights and the optimizer, what a snapshot holds.
struct Progress {
  std::int64_t step = 0;    // steps done
  std::int64_t tokens = 0;  // target tokens seen, all ranks
  bool skipped = false;     // the last step did not change the weights
  Cursor cursor;
};

struct Run {
  explicit Run(const Surroundings& s) : around(s) {}

  Surroundings around;
  Model model;
  Plans plans;
  Forecast forecast;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<AdamW> optimizer;
  std::unique_ptr<LossScaler> scaler;
  Schedule schedule;
  std::unique_ptr<Sampler> data, validation;  // validation may be null
  Progress progress;
  std::int64_t total_steps = 0;
  std::unique_ptr<Group> island;  // the ranks my gradients are summed over, when that is not everyone
  const std::function<int()>* stop_signal = nullptr;  // the signal this process was sent, or 0

  const Config& config() const { return around.config; }
  Group& everyone() const { return around.world.everyone(); }
  Group& scope() const { return island ? *island : everyone(); }
};

// Builds model, plans, engine and data, prints what the run will take and refuses what cannot fit. Weights are still
// undefined: load.h fills them.
std::unique_ptr<Run> prepare(const Surroundings&);

}  // namespace shale

#include "tests/core/train/mini_run.h"

#include <fstream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "core/base/error.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/mini_model.h"

namespace shale {

struct MiniRun::NoPlugins final : Plugins {
  ShardingStrategy& sharding() override { fail(Code::internal, "no plugins here"); }
  PrecisionPolicy& precision() override { fail(Code::internal, "no plugins here"); }
  OffloadPolicy& offload() override { fail(Code::internal, "no plugins here"); }
  CheckpointFormat& checkpoint() override { return plain; }
  const std::vector<LoadedPlugin>& loaded() const override { return facts; }
  test::PlainFormat plain;
  std::vector<LoadedPlugin> facts;
};

MiniRun::MiniRun(const Config& config) : MiniRun(config, World::join(local_launch(1)), nullptr) {}

MiniRun::MiniRun(World& world, const Config& config) : MiniRun(config, nullptr, &world) {}

MiniRun::MiniRun(const Config& config, std::unique_ptr<World> alone, World* shared)
    : config_(config),
      alone_(std::move(alone)),
      world_(shared ? *shared : *alone_),
      plugins_(std::make_unique<NoPlugins>()),
      device_(cpu_device()) {
  plugins_->plain.held.values = false;  // the plain format has integers only
  // Each rank on a host that keeps its plugins elsewhere.
  plugins_->facts = {{"checkpoint", "plain", "0.1.0", "", str("/host", world_.rank(), "/plain.so"), "hash", {}}};
  const GroupMaker make = [this](const Partition& p, const std::string& name) { return world_.group(p, name); };
  run_ = std::make_unique<Run>(Surroundings{config_, log_, world_, *plugins_, *device_, make});
  auto& run = *run_;
  run.model = mini_model({});
  auto& plans = run.plans;
  plans.sharding.groups = {self_partition(world_.size()), world_partition(world_.size())};
  plans.sharding.units.assign(run.model.info.units.size(), {.replica_group = kWorldGroup});
  std::vector<std::string> names;
  for (auto& unit : run.model.info.units) {
    plans.precision.units.emplace_back(unit.parameters.size());
    for (auto& p : unit.parameters) names.push_back(p.name);
  }
  run.engine = std::make_unique<Engine>(run.model, plans.precision, plans.sharding, make, EngineOptions{world_.rank()});
  const auto weights = mini_weights(run.model);
  run.engine->initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    return weights.at(p.name).flatten().narrow(0, begin, end - begin);
  });
  run.optimizer = std::make_unique<AdamW>(AdamWOptions{}, names);
  run.scaler = std::make_unique<LossScaler>(std::nullopt);
  run.schedule.lr = 0.01, run.schedule.total_steps = run.total_steps = 25;
}

MiniRun::~MiniRun() = default;

void MiniRun::open_data(const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 400; ++i) out.put(static_cast<char>((i * i + 3 * i) % 13));
  out.close();
  SamplerOptions options;
  options.seq_len = 5, options.micro_batch = 2;
  std::shared_ptr<const TokenSource> source = open_tokens(path, TokenFormat::text, log_);
  run_->data = std::make_unique<Sampler>(source, options, log_);
}

at::Tensor MiniRun::weights() {
  std::vector<at::Tensor> parts;
  run_->engine->each_parameter(
      [&](const ParameterInfo&, const at::Tensor& t) { parts.push_back(t.flatten().to(at::kDouble).clone()); });
  return at::cat(parts);
}

}  // namespace shale

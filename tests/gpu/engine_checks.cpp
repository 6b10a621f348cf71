// Training steps of the engine on the device against the same steps on the CPU.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "core/engine/engine.h"
#include "core/model/model.h"
#include "tests/gpu/check.h"
#include "tests/gpu/echo_group.h"

namespace shale {
namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kRows = 2, kLength = 32, kVocabulary = 64;

struct Plan {
  std::string strategy = "no_shard";
  int world = 1, micro_steps = 1;
  bool checkpoint = false, tied = false;
  SyncAt reduce_at = SyncAt::micro_step;
  int prefetch = 1, grad_slots = 0;
  ParameterPrecision precision{at::kDouble, at::kDouble, at::kDouble, at::kDouble,
                               at::kDouble, at::kDouble, at::kDouble};
  double tolerance = 1e-9;
};

Architecture small_llama(bool tied) {
  Architecture a;
  a.name = "check", a.vocab_size = kVocabulary, a.dim = 64, a.n_layers = 5, a.n_heads = 4, a.n_kv_heads = 2;
  a.ffn_dim = 96, a.head_dim = 16, a.max_positions = kLength, a.tied = tied, a.init_std = 0.1;
  return a;
}

ShardPlan shard_plan(const Plan& p, const ModelInfo& model) {
  ShardPlan plan;
  plan.groups = {self_partition(p.world), world_partition(p.world)};
  plan.grad_slots = p.grad_slots;
  UnitPlan u;
  u.prefetch = p.prefetch, u.reduce_at = p.reduce_at, u.replica_at = SyncAt::boundary;
  if (p.strategy == "no_shard") u.replica_group = kWorldGroup;
  if (p.strategy != "no_shard") u.shard_group = kWorldGroup;
  if (p.strategy == "full_shard") u.reshard_group = kWorldGroup;
  if (p.strategy == "zero2") u.gather_at = GatherAt::after_update;
  plan.units.assign(model.units.size(), u);
  return plan;
}

Batch batch(std::int64_t index) {
  const auto i = at::arange(index * 17, index * 17 + kRows * kLength, at::kLong).view({kRows, kLength});
  Batch b;
  b.tokens = (i * i + 3 * i) % kVocabulary, b.targets = (i * 5 + 1) % kVocabulary, b.n_targets = kRows * kLength;
  return b;
}

struct Result {
  std::vector<double> losses;
  at::Tensor masters;
};

class Trainer {
 public:
  Trainer(const Plan& p, ComputeDevice& device, int rank, const GroupMaker& make)
      : plan_(p), rank_(rank), model_(make_model(small_llama(p.tied), {}, kLength)) {
    for (auto& unit : model_.info.units) table_.units.emplace_back(unit.parameters.size(), p.precision);
    shards_ = shard_plan(p, model_.info);
    EngineOptions options;
    options.rank = rank, options.micro_steps = p.micro_steps, options.checkpoint_layers = p.checkpoint;
    options.device = device.torch(), options.streams = device.streams();
    engine_ = std::make_unique<Engine>(model_, table_, shards_, make, options);
    engine_->initialise([&](const ParameterInfo& info, std::int64_t begin, std::int64_t end) {
      return initial_values(model_.architecture, info, 7, begin, end);
    });
  }

  // Plain gradient descent. Losses are this rank's sums.
  Result train() {
    Result r;
    const double tokens = static_cast<double>(kRows * kLength * plan_.micro_steps * plan_.world);
    for (int step = 0; step < kSteps; ++step) {
      double loss = 0;
      engine_->begin_step();
      for (int m = 0; m < plan_.micro_steps; ++m) {
        const auto index = (step * plan_.micro_steps + m) * plan_.world + rank_;
        loss += engine_->forward_backward(batch(index), 1 / tokens, m + 1 == plan_.micro_steps);
      }
      engine_->end_step();
      at::NoGradGuard off;
      for (auto& s : engine_->shards()) s.master.sub_(s.grad, 0.1);
      engine_->weights_changed();
      r.losses.push_back(loss);
    }
    r.losses.push_back(engine_->evaluate(batch(1000)));
    std::vector<at::Tensor> masters;
    for (auto& s : engine_->shards()) masters.push_back(s.master);
    r.masters = at::cat(masters);
    return r;
  }

  Engine& engine() { return *engine_; }

 private:
  Plan plan_;
  int rank_;
  Model model_;
  PrecisionTable table_;
  ShardPlan shards_;
  std::unique_ptr<Engine> engine_;
};

void compare(const Plan& p, const Result& found, const Result& wanted) {
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
    const double error = std::abs(found.losses[i] / wanted.losses[i] - 1);
    expect(error <= p.tolerance, i < kSteps ? str("the loss of step ", i + 1) : str("the evaluated loss"), " is ",
           found.losses[i], " instead of ", wanted.losses[i], ", off by ", error);
  }
  const double error = error_of(found.masters, wanted.masters);
  expect(error <= 10 * p.tolerance, "the weights after ", kSteps, " steps are off by ", error);
}

// World 1: no group at all. World 2: the other rank is an echo.
void against_cpu(Bench& b, const Plan& p) {
  const auto on = [&](ComputeDevice& device) {
    const GroupMaker make = [&](const Partition&, const std::string& n) { return echo_group(device.torch(), n); };
    return Trainer(p, device, 0, make).train();
  };
  const auto cpu = cpu_device();
  const auto found = on(b.device);
  compare(p, found, on(*cpu));
}

// Two ranks over NCCL against two micro-batches of one rank on the CPU.
void two_ranks(Bench& b, const Plan& p) {
  const GroupMaker make = [&](const Partition& partition, const std::string& n) {
    return b.world->device_group(partition, n, [&](c10d::Store& store, int rank, int size, const std::string& name) {
      return std::unique_ptr<Group>(b.cuda->group({&store, rank, size, name, 60}));
    });
  };
  const auto found = Trainer(p, b.device, b.world->rank(), make).train();
  Plan alone = p;
  alone.world = 1, alone.micro_steps = p.micro_steps * 2, alone.strategy = "no_shard";
  const auto cpu = cpu_device();
  const auto wanted = Trainer(alone, *cpu, 0, {}).train();
  for (std::size_t i = 0; i < kSteps; ++i) {
    const double loss = all_reduce(b.world->everyone(), found.losses[i], Reduction::sum);
    const double error = std::abs(loss / wanted.losses[i] - 1);
    expect(error <= p.tolerance, "the loss of step ", i + 1, " is off by ", error);
  }
}

// A step that ended half-way, as after an error, leaves nothing that disturbs the next one.
void after_an_error(Bench& b) {
  Plan p;
  p.strategy = "full_shard", p.world = 2;
  const auto on = [&](ComputeDevice& device) {
    const GroupMaker make = [&](const Partition&, const std::string& n) { return echo_group(device.torch(), n); };
    Trainer trainer(p, device, 0, make);
    trainer.engine().begin_step();
    trainer.engine().forward_backward(batch(500), 1, false);
    return trainer.train();
  };
  const auto cpu = cpu_device();
  const auto found = on(b.device);
  compare(p, found, on(*cpu));
}

ParameterPrecision mixed() {
  return {at::kFloat, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
}
ParameterPrecision single() {
  return {at::kFloat, at::kFloat, at::kFloat, at::kFloat, at::kFloat, at::kFloat, at::kFloat};
}
// Slots and casts without any group: the master is wider than what is computed with, and the wire narrower.
ParameterPrecision narrow_wire() {
  return {at::kDouble, at::kDouble, at::kFloat, at::kDouble, at::kFloat, at::kDouble, at::kDouble};
}

}  // namespace

void add_engine_checks(Checks& checks) {
  const auto add = [&](const std::string& name, const Plan& p) {
    checks.push_back({"engine." + name, Needs::nothing, [p](Bench& b) { against_cpu(b, p); }});
  };
  add("one.no_shard", {});
  add("one.full_shard", {.strategy = "full_shard"});
  add("one.full_shard.float32", {.strategy = "full_shard", .precision = single(), .tolerance = 2e-5});
  add("one.full_shard.bf16", {.strategy = "full_shard", .precision = mixed(), .tolerance = 3e-2});
  add("one.full_shard.narrow_wire", {.strategy = "full_shard", .precision = narrow_wire(), .tolerance = 1e-6});
  add("one.checkpointing", {.strategy = "full_shard", .checkpoint = true});
  add("one.accumulation", {.strategy = "full_shard", .micro_steps = 3});
  for (std::string s : {"no_shard", "full_shard", "shard_grad_op", "zero2"}) {
    add("echo." + s, {.strategy = s, .world = 2});
    add("echo." + s + ".accumulation", {.strategy = s, .world = 2, .micro_steps = 3});
  }
  add("echo.boundary", {.strategy = "full_shard", .world = 2, .micro_steps = 3, .reduce_at = SyncAt::boundary});
  add("echo.checkpointing", {.strategy = "full_shard", .world = 2, .checkpoint = true});
  add("echo.tied", {.strategy = "full_shard", .world = 2, .micro_steps = 2, .tied = true});
  add("echo.prefetch_0", {.strategy = "full_shard", .world = 2, .prefetch = 0});
  add("echo.prefetch_3", {.strategy = "full_shard", .world = 2, .prefetch = 3, .grad_slots = 1});
  add("echo.narrow_wire",
      {.strategy = "full_shard", .world = 2, .micro_steps = 2, .precision = narrow_wire(), .tolerance = 1e-6});
  checks.push_back({"engine.echo.after_an_error", Needs::nothing, after_an_error});
  for (std::string s : {"no_shard", "full_shard", "shard_grad_op", "zero2"}) {
    const Plan p{.strategy = s, .world = 2, .micro_steps = 2};
    checks.push_back({"engine.two." + s, Needs::two_gpus, [p](Bench& b) { two_ranks(b, p); }});
  }
}

}  // namespace shale

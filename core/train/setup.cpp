#include <ATen/Parallel.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/device/cgroup.h"
#include "core/engine/join.h"
#include "core/train/report.h"
#include "core/train/run.h"
#include "core/train/snapshots.h"

namespace shale {
namespace {

void set_threads(const Surroundings& s, int local_world) {
  const auto asked = static_cast<int>(s.config.training.threads);
  at::set_num_threads(asked > 0 ? asked : std::max(1, usable_cores() / local_world));
}

int local_world(const Topology& t, int rank) {
  int n = 0;
  for (auto node : t.node_of_rank) n += node == t.node_of_rank[rank];
  return n;
}

// Fails on all ranks where some rank has another text: it would hang later, far from its cause.
void agree_on(const Run& run, const std::string& mine, Code code, const std::string& what, const std::string& advice) {
  const auto all = all_gather_text(run.everyone(), hash_text(mine));
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != all.front()) fail(code, what, " on rank 0 and another on rank ", r, "; ", advice);
}

void agree_on_plan(const Run& run, const PluginChoice& choice, const std::string& plan) {
  agree_on(run, plan, Code::config,
           str(choice.origin.text, ": [", choice.kind, "] plugin ", choice.plugin, " made one plan"),
           "a plan must not depend on the rank");
}

// Every host reads files of its own, and they may not be copies.
constexpr const char* kSameFiles = "give every host the same files";

void agree_on_model(const Run& run) {
  agree_on(run, config_json(run.model.architecture), Code::input,
           run.config().model.hf_assets_path + ": describes one model", kSameFiles);
}

void agree_on_data(const Run& run, const Sampler& data, const std::string& path) {
  agree_on(run, str(data.sequences()), Code::input, path + ": holds one number of sequences", kSameFiles);
  agree_on(run, data.sample(), Code::input, path + ": holds one sequence of tokens", kSameFiles);
}

void make_plans(Run& run) {
  auto& s = run.around;
  auto& p = run.plans;
  p.topology = s.world.topology();
  p.topology.micro_steps = static_cast<int>(micro_steps(s.config, s.world.size()));
  p.topology.cuda = s.device.torch().is_cuda();
  p.topology.device_arch = s.device.arch(), p.topology.device_bytes = s.device.bytes();
  p.precision = s.plugins.precision().plan(run.model.info, p.topology);
  validate(p.precision, run.model.info);
  p.sharding = s.plugins.sharding().plan(run.model.info, p.topology);
  validate(p.sharding, run.model.info, p.topology);
  agree_on_plan(run, s.config.precision, p.precision.text());
  agree_on_plan(run, s.config.sharding, p.sharding.text());
  join_units(run.model, p.precision, p.sharding);
}

OffloadAsk ask_for(const MemoryPlan& memory, std::size_t units) {
  OffloadAsk ask;
  ask.bytes.resize(units);
  for (std::size_t u = 0; u < units; ++u)
    for (auto& f : memory.units[u].flats) {
      const auto bytes = static_cast<std::uint64_t>(f.range.chunk) * c10::elementSize(f.precision.master);
      ask.bytes[u][static_cast<std::size_t>(MemoryClass::master)] += bytes;
      if (f.layout.frozen) continue;
      ask.bytes[u][static_cast<std::size_t>(MemoryClass::moments)] += 2 * bytes;
      ask.bytes[u][static_cast<std::size_t>(MemoryClass::grads)] += bytes;
    }
  return ask;
}

// What this process takes besides tensors: what it has by now, and work space that libraries take in the first step.
std::int64_t process_bytes(const Run& run) {
  constexpr std::int64_t kLibraries = std::int64_t{22} << 20;
  if (run.plans.topology.cuda) return 0;
  return static_cast<std::int64_t>(peak_rss()) - run.around.device.allocated() + kLibraries;
}

// Says what the run will take, and ends it here when that cannot fit.
void look_ahead(Run& run) {
  const auto& c = run.config();
  auto& p = run.plans;
  const auto memory =
      plan_memory(run.model.info, p.precision, p.sharding, run.around.world.rank(), p.topology.micro_steps);
  p.offload =
      run.around.plugins.offload().plan(run.model.info, p.topology, ask_for(memory, run.model.info.units.size()));
  validate(p.offload, run.model.info, p.topology);
  const Workload work{c.training.local_batch_size,       c.training.seq_len, p.topology.micro_steps,
                      c.activation_checkpoint == "full", process_bytes(run), staging_bytes(run, memory)};
  run.forecast = forecast(run.model, memory, p.sharding, p.topology, work);
  run.around.log.info(describe(run.forecast));
  const auto here = p.topology.cuda ? 1 : local_world(p.topology, run.around.world.rank());
  const auto need = static_cast<std::uint64_t>(run.forecast.total()) * here;
  if (p.topology.device_bytes != 0 && need > p.topology.device_bytes)
    fail(Code::config, "the run needs ", human_bytes(static_cast<double>(need)), " for ", here,
         " rank(s), but there are ", human_bytes(static_cast<double>(p.topology.device_bytes)),
         "; lower training.local_batch_size, set ", "activation_checkpoint.mode = \"full\" or shard over more ranks");
}

void check_vocabulary(const TokenSource& source, const Architecture& a, const std::string& path) {
  if (source.bound() < a.vocab_size) return;  // no need to read it all
  if (source.largest() >= a.vocab_size)
    fail(Code::input, path, ": token ", source.largest(), " does not exist in a vocabulary of ", a.vocab_size,
         "; the tokens belong to another model");
}

TokenFormat token_format(const std::string& name) {
  if (name == "text") return TokenFormat::text;
  if (name == "nanogpt") return TokenFormat::nanogpt;
  if (name == "llmc") return TokenFormat::llmc;
  return TokenFormat::detect;
}

std::unique_ptr<Sampler> open_data(const Run& run, const std::string& path, SamplerOptions options) {
  const auto& c = run.config();
  std::shared_ptr<const TokenSource> source = open_tokens(path, token_format(c.training.dataset), run.around.log);
  check_vocabulary(*source, run.model.architecture, path);
  options.seq_len = c.training.seq_len;
  options.world = run.around.world.size(), options.rank = run.around.world.rank();
  options.seed = static_cast<std::uint64_t>(c.debug.seed);
  return std::make_unique<Sampler>(source, options, run.around.log);
}

Model describe_model(const Surroundings& s) {
  const auto& m = s.config.model;
  const auto length = s.config.training.seq_len;
  const auto architecture = m.hf_assets_path.empty() ? flavor(m.flavor) : read_architecture(m.hf_assets_path);
  if (length > architecture.max_positions)
    s.log.warning(str(s.config.origin("training.seq_len").text, ": [training] seq_len ", length, " is longer than the ",
                      architecture.max_positions, " positions that ", architecture.name, " was made for"));
  return make_model(architecture, m.frozen, length);
}

void make_data(Run& run) {
  const auto& c = run.config();
  SamplerOptions options;
  options.micro_batch = c.training.local_batch_size, options.micro_steps = run.plans.topology.micro_steps;
  options.shuffle = c.training.shuffle;
  run.data = open_data(run, c.training.dataset_path, options);
  agree_on_data(run, *run.data, c.training.dataset_path);
  if (!c.validation.enable) return;
  // As many sequences as a training step has, whatever the number of ranks: the loss must not depend on it.
  const auto rows = options.micro_batch * options.micro_steps;
  if (c.validation.local_batch_size > 0) options.micro_batch = c.validation.local_batch_size;
  options.micro_steps = static_cast<int>(rows / options.micro_batch), options.shuffle = false;
  run.validation = open_data(run, c.validation.dataset_path, options);
  agree_on_data(run, *run.validation, c.validation.dataset_path);
}

void make_length(Run& run) {
  const auto& c = run.config();
  run.total_steps = c.training.steps;
  if (c.training.epochs > 0) {
    const auto sequences = run.data->sequences() * c.training.epochs;
    run.total_steps = sequences / run.data->global_batch();
    if (const auto rest = sequences % run.data->global_batch())
      run.around.log.warning(str(rest, " sequences at the end of the last epoch do not fill a global batch of ",
                                 run.data->global_batch(), " and are dropped"));
    if (run.total_steps == 0)
      fail(Code::input, c.training.dataset_path, ": ", sequences, " sequences do not fill one global batch of ",
           run.data->global_batch());
  }
}

// config/ has checked all of this already where the number of steps does not come from the data.
void make_schedule(Run& run) {
  const auto& c = run.config();
  const auto& l = c.lr_scheduler;
  const auto total = l.total_steps > 0 ? l.total_steps : run.total_steps;
  const auto origin = c.origin("lr_scheduler.warmup_steps").text;
  auto warmup = l.warmup_steps;
  if (warmup > total && origin == Origin{}.text) warmup = total / 10;
  if (warmup > total)
    fail(Code::config, origin, ": [lr_scheduler] warmup_steps ", warmup, " is longer than the whole schedule of ",
         total, " steps");
  run.schedule = {c.optimizer.lr, l.min_lr_factor, warmup, total, l.decay_ratio, l.decay_type};
}

void make_optimizer(Run& run) {
  const auto& o = run.config().optimizer;
  std::vector<std::string> trainable;
  for (auto& unit : run.model.info.units)
    for (auto& p : unit.parameters)
      if (!p.frozen) trainable.push_back(p.name);
  if (trainable.empty())
    fail(Code::config, run.config().origin("model.frozen").text, ": [model] frozen leaves no parameter to train");
  const AdamWOptions options{o.beta1, o.beta2, o.eps, o.weight_decay, o.decay_norms};
  run.optimizer = std::make_unique<AdamW>(options, trainable);
  run.scaler = std::make_unique<LossScaler>(run.plans.precision.loss_scale);
}

// Replicas that are never summed train apart: each shard group is a run of its own between outer steps.
void make_scope(Run& run) {
  const auto& plan = run.plans.sharding;
  for (auto& u : plan.units)
    if (u.replica_at == SyncAt::never && u.replica_group != kSelfGroup) {
      run.island = run.around.world.group(plan.groups[u.shard_group], "island");
      return;
    }
}

}  // namespace

std::unique_ptr<Run> prepare(const Surroundings& s) {
  auto run = std::make_unique<Run>(s);
  run->model = describe_model(s);
  agree_on_model(*run);
  make_plans(*run);
  set_threads(s, local_world(run->plans.topology, s.world.rank()));
  make_data(*run);
  make_length(*run);
  make_schedule(*run);
  look_ahead(*run);
  make_optimizer(*run);
  make_scope(*run);
  EngineOptions options{s.world.rank(), run->plans.topology.micro_steps, s.config.activation_checkpoint == "full",
                        s.device.torch()};
  auto& strategy = s.plugins.sharding();
  options.hooks = {strategy.exchange(), strategy.outer(), s.plugins.loaded().front().id,
                   static_cast<std::uint64_t>(s.config.debug.seed), s.config.comm.train_timeout_seconds};
  options.streams = options.hooks.streams = s.device.streams();
  run->engine = std::make_unique<Engine>(run->model, run->plans.precision, run->plans.sharding, s.make_group, options);
  return run;
}

}  // namespace shale

#include "core/train/load.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/checkpoint/snapshot.h"
#include "core/loader/plugins.h"
#include "core/model/weights_file.h"
#include "core/train/hook_state.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

bool has_weights(const std::string& folder) {
  return fs::exists(folder + "/model.safetensors") || fs::exists(folder + "/model.safetensors.index.json");
}

// Also under names or in formats that cannot be read: those are errors, never a reason to begin from initial values.
bool has_something_like_weights(const std::string& folder) {
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const auto name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name == "model.safetensors.index.json" || name.starts_with("pytorch_model"))
      return true;
  }
  return false;
}

void load_hf(Run& run, const std::string& folder) {
  const auto file = WeightsFolder::open(folder);
  file->match(run.model.info, run.model.architecture);
  run.engine->initialise(
      [&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) { return file->read(p.name, begin, end); });
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (auto n : shape) sizes.push_back(str(n));
  return "[" + join(sizes, ", ") + "]";
}

std::string few(std::vector<std::string> names) {
  constexpr std::size_t kShown = 8;
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  return join(names, ", ") + (more ? ", ..." : "");
}

// What a snapshot must hold to be this model's, by name.
void match(const Run& run, const SnapshotReader& reader, const std::string& path) {
  std::set<std::string> known;
  std::vector<std::string> missing, strange;
  for (auto& unit : run.model.info.units)
    for (auto& p : unit.parameters) {
      known.insert(p.name);
      const auto* item = reader.find(ItemRole::weight, p.name, "weight");
      if (!item)
        missing.push_back(p.name);
      else if (item->shape != p.shape)
        fail(Code::checkpoint, path, ": ", p.name, " has shape ", shape_text(item->shape), ", the model's is ",
             shape_text(p.shape));
    }
  for (auto& item : reader.items())
    if (item.role == ItemRole::weight && item.alias_of.empty() && !known.count(item.name)) strange.push_back(item.name);
  const auto report = [&](const std::vector<std::string>& names, const char* what) {
    if (names.empty()) return;
    fail(Code::checkpoint, path, ": ", names.size(), " parameter(s) ", what, ": ", few(names),
         "; is it a snapshot of another model?");
  };
  report(missing, "of the model are not in the snapshot");
  report(strange, "of the snapshot are not in the model");
}

// A run may go on with fewer digits, but not without a word.
void tell_rounding(const Run& run, const SnapshotReader& reader, const std::string& path) {
  for (std::size_t u = 0; u < run.model.info.units.size(); ++u)
    for (std::size_t i = 0; i < run.model.info.units[u].parameters.size(); ++i) {
      const auto& name = run.model.info.units[u].parameters[i].name;
      const auto saved = reader.find(ItemRole::weight, name, "weight")->dtype;
      const auto master = run.plans.precision.units[u][i].master;
      if (c10::elementSize(saved) <= c10::elementSize(master)) continue;
      return run.around.log.warning(
          str(path, ": ", name, " is saved as ", dtype_name(saved), " and rounded to ", dtype_name(master)));
    }
}

at::Tensor read_part(SnapshotReader& reader, const Item& item, std::int64_t begin, std::int64_t n) {
  auto to = at::empty({n}, at::TensorOptions(item.dtype));
  reader.read(item, begin, to);
  return to;
}

void load_weights(Run& run, SnapshotReader& reader, const std::string& path) {
  match(run, reader, path);
  tell_rounding(run, reader, path);
  run.engine->initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    return read_part(reader, *reader.find(ItemRole::weight, p.name, "weight"), begin, end - begin);
  });
}

// Updates of each parameter so far. Those that were frozen when the snapshot was made have no moments: they start at 0.
void load_updates(Run& run, const SnapshotReader& reader, const std::string& path) {
  const auto of_optimizer = [](const Item& item) { return item.role == ItemRole::optimizer; };
  if (std::ranges::none_of(reader.items(), of_optimizer))
    fail(Code::checkpoint, path, ": holds no optimizer state; give it as checkpoint.initial_load_path to start from ",
         "its weights");
  std::vector<std::string> without;
  for (auto& [name, updates] : run.optimizer->updates()) {
    const auto* item = reader.find(ItemRole::optimizer, name, "step");
    const auto* value = item ? std::get_if<std::int64_t>(&item->value) : nullptr;
    if (item && (!value || *value < 0)) fail(Code::checkpoint, path, ": ", item->id(), " is not a number of updates");
    if (!item) without.push_back(name);
    updates = item ? *value : 0;
  }
  if (!without.empty())
    run.around.log.warning(str(path, ": no optimizer state for ", without.size(), " parameter(s): ", few(without),
                               "; their moments start at zero"));
}

void load_optimizer(Run& run, SnapshotReader& reader, const std::string& path) {
  load_updates(run, reader, path);
  for (auto& shard : run.engine->shards()) {
    if (!shard.grad.defined()) continue;
    for (auto& piece : shard.pieces) {
      const auto& r = piece.range;
      const auto& p = *piece.parameter;
      const auto load = [&](const char* key, const at::Tensor& to) {
        auto part = to.narrow(0, r.shard_begin, r.count);
        if (!reader.find(ItemRole::optimizer, p.name, "step")) return (void)part.zero_();
        const auto* item = reader.find(ItemRole::optimizer, p.name, key);
        if (!item || item->kind != ItemKind::tensor || item->shape != p.shape)
          fail(Code::checkpoint, path, ": ", key, " of ", p.name, item ? " has another shape" : " is missing",
               "; the snapshot is no whole one");
        part.copy_(read_part(reader, *item, r.parameter_begin, r.count));
      };
      load("exp_avg", shard.exp_avg);
      load("exp_avg_sq", shard.exp_avg_sq);
    }
  }
}

template <class T>
T run_value(const SnapshotReader& reader, const std::string& key) {
  const auto* item = reader.find(ItemRole::run, "run", key);
  if (!item || !std::holds_alternative<T>(item->value))
    fail(Code::checkpoint, "the snapshot of step ", reader.step(), " has no run state ", key);
  return std::get<T>(item->value);
}

std::int64_t run_count(const SnapshotReader& reader, const std::string& key) {
  const auto value = run_value<std::int64_t>(reader, key);
  if (value < 0) fail(Code::checkpoint, "the snapshot of step ", reader.step(), " has ", key, " ", value);
  return value;
}

// The configuration wins over what the snapshot was made with; where that changes the run, it is said.
void tell_changes(const Run& run, const SnapshotReader& reader) {
  const auto tell = [&](const std::string& key, auto before, auto after) {
    if (before != after)
      run.around.log.warning(
          str(key, " was ", before, " when the snapshot was made and is ", after, " now; the configuration wins"));
  };
  tell("optimizer.lr", run_value<double>(reader, "lr"), run.schedule.lr);
  const auto& s = run.schedule;
  tell("the number of steps of the schedule", run_value<std::int64_t>(reader, "total_steps"), s.total_steps);
  tell("lr_scheduler.warmup_steps", run_value<std::int64_t>(reader, "warmup_steps"), s.warmup_steps);
  tell("lr_scheduler.decay_ratio", run_value<double>(reader, "decay_ratio"), s.decay_ratio);
  tell("lr_scheduler.decay_type", run_value<std::string>(reader, "decay_type"), s.decay_type);
  tell("lr_scheduler.min_lr_factor", run_value<double>(reader, "min_lr_factor"), s.min_lr_factor);
  tell("debug.seed", run_value<std::int64_t>(reader, "seed"), run.config().debug.seed);
  tell("training.seq_len", run_value<std::int64_t>(reader, "seq_len"), run.config().training.seq_len);
}

void load_progress(Run& run, const SnapshotReader& reader) {
  run.progress.step = run_count(reader, "step");
  run.progress.tokens = run_count(reader, "tokens");
  run.progress.cursor.next = run_count(reader, "data.next");
  if (reader.find(ItemRole::run, "run", "skipped")) run.progress.skipped = run_count(reader, "skipped") != 0;
  LossScaler::State s;
  s.scale = run_value<double>(reader, "loss_scale.scale");
  s.clean = static_cast<int>(run_value<std::int64_t>(reader, "loss_scale.clean"));
  s.overflows = static_cast<int>(run_value<std::int64_t>(reader, "loss_scale.overflows"));
  s.skips = static_cast<int>(run_value<std::int64_t>(reader, "loss_scale.skips"));
  run.scaler->restore(s);
}

Item value_item(ItemRole role, const std::string& name, const std::string& key, ItemValue value) {
  Item item;
  item.kind = ItemKind::value, item.role = role, item.name = name, item.key = key, item.value = std::move(value);
  return item;
}

// Collective: hosts may keep their plugins in different places, but what a snapshot holds is one text, that of rank 0.
std::vector<Item> value_items(Run& run) {
  std::vector<Item> items;
  const auto add = [&](const char* key, ItemValue v) { items.push_back(value_item(ItemRole::run, "run", key, v)); };
  add("step", run.progress.step), add("tokens", run.progress.tokens), add("data.next", run.progress.cursor.next);
  add("skipped", std::int64_t{run.progress.skipped});
  const auto scale = run.scaler->state();
  add("loss_scale.scale", scale.scale), add("loss_scale.clean", std::int64_t{scale.clean});
  add("loss_scale.overflows", std::int64_t{scale.overflows}), add("loss_scale.skips", std::int64_t{scale.skips});
  const auto& schedule = run.schedule;
  add("lr", schedule.lr), add("total_steps", schedule.total_steps), add("warmup_steps", schedule.warmup_steps);
  add("decay_ratio", schedule.decay_ratio), add("decay_type", schedule.decay_type);
  add("min_lr_factor", schedule.min_lr_factor);
  add("seed", run.config().debug.seed), add("seq_len", run.config().training.seq_len);
  add("plugins", all_gather_text(run.everyone(), run.around.plugins.describe()).front());
  for (auto& [name, updates] : run.optimizer->updates())
    items.push_back(value_item(ItemRole::optimizer, name, "step", updates));
  if (run.model.architecture.tied) {
    Item alias;
    alias.name = "lm_head.weight", alias.key = "weight", alias.alias_of = "model.embed_tokens.weight";
    for (auto& p : run.model.info.units.front().parameters)
      if (p.name == alias.alias_of) alias.shape = p.shape;
    items.push_back(alias);
  }
  return items;
}

std::vector<Piece> pieces_of(Engine& engine) {
  std::vector<Piece> pieces;
  for (auto& shard : engine.shards()) {
    if (!shard.writer) continue;
    for (auto& part : shard.pieces) {
      const auto add = [&](ItemRole role, const char* key, const at::Tensor& from) {
        Item item;
        item.role = role, item.name = part.parameter->name, item.key = key;
        item.dtype = from.scalar_type(), item.shape = part.parameter->shape;
        auto data = from.narrow(0, part.range.shard_begin, part.range.count);
        pieces.push_back({item, part.range.parameter_begin, data});
      };
      add(ItemRole::weight, "weight", shard.master);
      if (!shard.grad.defined()) continue;
      add(ItemRole::optimizer, "exp_avg", shard.exp_avg);
      add(ItemRole::optimizer, "exp_avg_sq", shard.exp_avg_sq);
    }
  }
  return pieces;
}

}  // namespace

void first_weights(Run& run) {
  const auto& c = run.config();
  const auto& path = c.checkpoint.initial_load_path;
  if (!path.empty() && !format_of(path).empty()) {
    const auto reader = SnapshotReader::open(path, run.around.plugins.checkpoint());
    load_weights(run, *reader, path);
    if (c.checkpoint.initial_load_model_only) return;
    load_optimizer(run, *reader, path);
    load_hook_state(run, *reader, path);
    load_progress(run, *reader);
    tell_changes(run, *reader);
    return;
  }
  if (!path.empty() && !has_weights(path))
    fail(Code::checkpoint, c.origin("checkpoint.initial_load_path").text, ": [checkpoint] initial_load_path ", path,
         " is neither a complete snapshot nor a folder with model.safetensors");
  if (!path.empty()) return load_hf(run, path);
  const auto& assets = c.model.hf_assets_path;
  if (!assets.empty() && has_something_like_weights(assets)) return load_hf(run, assets);
  if (!assets.empty())
    run.around.log.warning(str(assets, ": holds no weights, so the run begins from initial values by debug.seed"));
  const auto seed = static_cast<std::uint64_t>(c.debug.seed);
  run.engine->initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    return initial_values(run.model.architecture, p, seed, begin, end);
  });
}

void resume(Run& run, const std::string& snapshot) {
  const auto reader = SnapshotReader::open(snapshot, run.around.plugins.checkpoint());
  load_weights(run, *reader, snapshot);
  load_optimizer(run, *reader, snapshot);
  load_hook_state(run, *reader, snapshot);
  load_progress(run, *reader);
  tell_changes(run, *reader);
}

SnapshotSpec describe_state(Run& run, const std::string& checkpoints) {
  SnapshotSpec spec;
  spec.root = checkpoints, spec.step = static_cast<std::uint64_t>(run.progress.step);
  run.engine->drain();
  spec.pieces = pieces_of(*run.engine);
  for (auto& piece : hook_pieces(run)) spec.pieces.push_back(std::move(piece));
  spec.items = value_items(run);
  spec.items.push_back(plan_item(run));
  spec.model_json = config_json(run.model.architecture), spec.config_text = run.config().text;
  for (auto& p : run.around.plugins.loaded()) spec.plugins.push_back(str(p.kind, " ", p.id, " ", p.version));
  return spec;
}

}  // namespace shale

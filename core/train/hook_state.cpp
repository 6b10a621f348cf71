#include "core/train/hook_state.h"

#include <set>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/loader/plugins.h"

namespace shale {
namespace {

constexpr const char* kPlanKey = "sharding_plan";

const std::string& plugin_id(const Run& run) { return run.around.plugins.loaded().front().id; }

std::string plan_hash(const Run& run) {
  return hash_text(str(run.around.world.size(), "\n", run.plans.sharding.text()));
}

// Of one rank's flat; state names have no '-', so what we add ourselves never meets one.
std::string rank_key(const Run& run, const std::string& what, const Shard* shard) {
  const auto flat = shard ? str(".unit", shard->layout.unit, ".flat", shard->layout.index) : "";
  return str(what, ".rank", run.around.world.rank(), flat);
}

Item tensor_item(const Run& run, const std::string& key, const at::Tensor& value, std::vector<std::int64_t> shape) {
  Item item;
  item.role = ItemRole::plugin, item.name = plugin_id(run), item.key = key;
  item.dtype = value.scalar_type(), item.shape = std::move(shape);
  return item;
}

// Calls visit(key, shape, begin, part) for each tensor or part of one that this rank holds of a state.
template <class Visit>
void each_part(const Run& run, const State& state, const Visit& visit) {
  const auto& name = state.spec->name;
  const std::vector<std::int64_t> whole{state.value.numel()};
  switch (state.spec->scope) {
    case StateScope::global:
      return visit(name, whole, 0, state.value);
    case StateScope::rank:
      return visit(rank_key(run, name, nullptr), whole, 0, state.value);
    case StateScope::shard_rank:
      return visit(rank_key(run, name, state.shard), whole, 0, state.value);
    case StateScope::shard:
      for (auto& p : state.shard->pieces)
        visit(str(name, ".", p.parameter->name), p.parameter->shape, p.range.parameter_begin,
              state.value.narrow(0, p.range.shard_begin, p.range.count));
  }
}

bool writes(const Run& run, const State& state) {
  if (state.spec->scope == StateScope::global) return run.around.world.rank() == 0;
  return state.spec->scope != StateScope::shard || state.shard->writer;
}

// Calls visit(key, tensor) for what this rank's replica has for itself between outer steps.
template <class Visit>
void each_own(const Run& run, const Visit& visit) {
  for (auto& s : run.engine->shards()) {
    if (!s.drifts || s.writer || s.layout.frozen) continue;
    visit(rank_key(run, "own-master", &s), s.master);
    visit(rank_key(run, "own-exp-avg", &s), s.exp_avg);
    visit(rank_key(run, "own-exp-avg-sq", &s), s.exp_avg_sq);
  }
}

// False when the snapshot has no such tensor of this shape.
bool load_part(SnapshotReader& reader, const Item& wanted, std::int64_t begin, const at::Tensor& to) {
  const auto* item = reader.find(ItemRole::plugin, wanted.name, wanted.key);
  if (!item || item->kind != ItemKind::tensor || item->shape != wanted.shape) return false;
  auto part = at::empty({to.numel()}, at::TensorOptions(item->dtype));
  reader.read(*item, begin, part);
  to.copy_(part);
  return true;
}

bool under_same_plan(const Run& run, const SnapshotReader& reader) {
  const auto* item = reader.find(ItemRole::run, "run", kPlanKey);
  const auto* text = item ? std::get_if<std::string>(&item->value) : nullptr;
  return text && *text == plan_hash(run);
}

void load_own(Run& run, SnapshotReader& reader, bool same, const std::string& path) {
  bool all = same, any = false;
  each_own(run, [&](const std::string& key, const at::Tensor& to) {
    any = true;
    all = all && load_part(reader, tensor_item(run, key, to, {to.numel()}), 0, to);
  });
  if (any && !all)
    run.around.log.warning(
        str(path, ": was saved under another plan, so all replicas begin from the first one's weights"));
}

}  // namespace

std::vector<Piece> hook_pieces(Run& run) {
  std::vector<Piece> out;
  for (auto& state : run.engine->states().all()) {
    if (!writes(run, state)) continue;
    each_part(run, state, [&](const std::string& key, const auto& shape, std::int64_t begin, const at::Tensor& part) {
      out.push_back({tensor_item(run, key, part, shape), begin, part.cpu()});
    });
  }
  each_own(run, [&](const std::string& key, const at::Tensor& from) {
    out.push_back({tensor_item(run, key, from, {from.numel()}), 0, from.cpu()});
  });
  return out;
}

Item plan_item(const Run& run) {
  Item item;
  item.kind = ItemKind::value, item.role = ItemRole::run, item.name = "run", item.key = kPlanKey;
  item.value = plan_hash(run);
  return item;
}

void load_hook_state(Run& run, SnapshotReader& reader, const std::string& path) {
  if (!run.plans.sharding.own.any()) return;
  const bool same = under_same_plan(run, reader);
  run.engine->drain();
  load_own(run, reader, same, path);
  run.engine->states().fill();  // those that begin as the masters do so now
  std::set<std::string> fresh;
  for (auto& state : run.engine->states().all()) {
    const bool by_rank = state.spec->scope == StateScope::rank || state.spec->scope == StateScope::shard_rank;
    each_part(run, state, [&](const std::string& key, const auto& shape, std::int64_t begin, const at::Tensor& part) {
      const bool loaded = (same || !by_rank) && load_part(reader, tensor_item(run, key, part, shape), begin, part);
      if (!loaded && state.spec->refuse_reshape)
        fail(Code::checkpoint, path, ": has no ", key, " of plugin ", plugin_id(run),
             " that fits this world and plan, ",
             "and the plugin does not begin it anew; resume with the same number of ranks and sharding options");
      if (!loaded) fresh.insert(state.spec->name);
    });
  }
  if (fresh.empty())
    run.engine->states_loaded();
  else
    run.around.log.warning(str(path, ": state ", join(std::vector<std::string>(fresh.begin(), fresh.end()), ", "),
                               " of plugin ", plugin_id(run),
                               " is not in it for this plan and begins from its first value"));
  run.engine->weights_changed();
}

}  // namespace shale

// Everything the engine makes once: shards, slots, groups and the leaves the model computes with.
#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "core/base/error.h"
#include "core/engine/engine.h"

namespace shale {
namespace {

at::Tensor bytes_on(at::Device device, std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
}

// A tensor of its own over memory somebody else keeps: autograd sees no alias, so refilling the memory is invisible to
// it. That is the point, and why slots carry tags.
at::Tensor over(const at::Tensor& memory, std::int64_t byte, at::IntArrayRef shape, at::ScalarType dtype) {
  auto* base = static_cast<char*>(memory.data_ptr()) + byte;
  return at::from_blob(base, shape, at::TensorOptions(dtype).device(memory.device()));
}

}  // namespace

Engine::Engine(const Model& model, const PrecisionTable& precision, const ShardPlan& plan, const GroupMaker& make_group,
               const EngineOptions& options)
    : model_(model),
      plan_(plan),
      options_(options),
      memory_(plan_memory(model.info, precision, plan, options.rank, options.micro_steps)),
      shards_(make_shards()),
      hooks_(plan, shards_, make_group, options.hooks, options.device),
      weights_(plan, hooks_, options.streams),
      gradients_(plan, hooks_, options.streams) {
  make_slots();
  make_units(make_group);
  make_positions();
}

// Memory goes back to the allocator of the compute stream: the other streams must be done with it.
Engine::~Engine() {
  gradients_.abandon(units_, grad_slots_);
  try {
    gradients_.settle();
    weights_.settle();
  } catch (const std::exception&) {
    return;  // the device is broken, which was said where it broke
  }
}

std::deque<Shard> Engine::make_shards() const {
  std::deque<Shard> shards;
  for (std::size_t u = 0; u < memory_.units.size(); ++u)
    for (auto& f : memory_.units[u].flats) {
      const auto options = [&](at::ScalarType t) { return at::TensorOptions(t).device(options_.device); };
      const auto& p = f.precision;
      auto& s = shards.emplace_back();
      s.layout = f.layout, s.range = f.range;
      s.master = at::empty({f.range.length}, options(p.master));
      if (!f.layout.frozen) {
        s.grad = at::zeros({f.range.chunk}, options(p.accumulate));
        s.exp_avg = at::zeros({f.range.length}, options(p.moments));
        s.exp_avg_sq = at::zeros({f.range.length}, options(p.moments));
      }
      for (std::size_t i = 0; i < f.layout.parameters.size(); ++i) {
        const auto& info = model_.info.units[u].parameters[f.layout.parameters[i]];
        const auto range = overlap(f.layout, i, numel(info.shape), f.range);
        if (range.count > 0) s.pieces.push_back({&info, range});
      }
      s.writer = members(plan_.groups[plan_.units[u].replica_group], options_.rank).front() == options_.rank;
      s.drifts = plan_.units[u].replica_at == SyncAt::never;
      s.counted = s.writer || s.drifts;
    }
  return shards;
}

void Engine::make_slots() {
  for (auto bytes : memory_.weight_slots) {
    auto& slot = weight_slots_.emplace_back();
    slot.memory = bytes_on(options_.device, bytes), slot.free = make_event(options_.streams);
  }
  for (auto& b : memory_.grad_slots) {
    auto& slot = grad_slots_.emplace_back();
    slot.grads = bytes_on(options_.device, b.grads), slot.wire = bytes_on(options_.device, b.wire);
    slot.staging = bytes_on(options_.device, b.staging), slot.sum = bytes_on(options_.device, b.sum);
  }
}

// Gathers and reductions have groups of their own, so that one never waits behind the other.
Group* Engine::group(int partition, const std::string& purpose, const GroupMaker& make) {
  if (members(plan_.groups[partition], options_.rank).size() == 1) return nullptr;
  const auto name = str(purpose, ".", partition);
  for (auto& [known, g] : groups_)
    if (known == name) return g.get();
  groups_.emplace_back(name, make(plan_.groups[partition], name));
  return groups_.back().second.get();
}

void Engine::bind_groups(FlatState& f, const UnitPlan& u, const GroupMaker& make) {
  f.reduces = f.plan->ways > 1;
  f.replicated = u.replica_at != SyncAt::never && members(plan_.groups[u.replica_group], options_.rank).size() > 1;
  if (!plan_.own.gather) f.gather = group(u.shard_group, "gather", make);
  if (!plan_.own.reduce) f.reduce = group(u.shard_group, "reduce", make);
  if (f.replicated && !plan_.own.replicate) f.replicas = group(u.replica_group, "replicas", make);
  if (f.kept.defined() && !plan_.own.gather) f.regather = group(u.reshard_group, "regather", make);
}

void Engine::bind_flat(FlatState& f, UnitState& u, const FlatMemory& m) {
  const auto& p = m.precision;
  const auto n = m.elements();
  f.plan = &m;
  if (m.whole_weights) {
    f.weights = f.shard->master;
  } else {
    f.weights = over(u.weight_slot->memory, m.weight_offset, {n}, p.compute);
    if (p.gather != p.compute && !hooks_.gathers(m)) {
      const auto spare = n * static_cast<std::int64_t>(c10::elementSize(p.compute) - c10::elementSize(p.gather));
      f.wire_weights = over(u.weight_slot->memory, m.weight_offset + spare, {n}, p.gather);
    }
    if (m.kept_ways > 0)
      f.kept = at::empty({m.kept()}, (f.wire_weights.defined() ? f.wire_weights : f.weights).options());
  }
  if (m.layout.frozen) return;
  u.trains = true;
  f.shard_grads = f.shard->grad;
  f.shard->grad = f.shard_grads.narrow(0, 0, m.range.length);
  if (m.whole_grads) {
    f.grads = f.shard_grads;
    return;
  }
  auto& slot = *u.grad_slot;
  f.grads = over(slot.grads, m.grad_offset, {n}, p.grad);
  const bool own = hooks_.reduces(m);
  if (p.grad != p.reduce && !own) f.wire_grads = over(slot.wire, m.wire_offset, {n}, p.reduce);
  if (m.ways > 1 && !own) f.staging = over(slot.staging, m.staging_offset, {n}, p.reduce);
  if (m.ways > 1 && slot.sum.numel() > 0) f.sum = over(slot.sum, m.sum_offset, {m.range.chunk}, p.accumulate);
}

void Engine::make_units(const GroupMaker& make) {
  auto shard = shards_.begin();
  for (std::size_t i = 0; i < memory_.units.size(); ++i) {
    const auto& m = memory_.units[i];
    auto& u = units_.emplace_back();
    u.info = &model_.info.units[i];
    u.pinned = m.pinned;
    u.fresh.assign(u.info->parameters.size(), true);
    if (m.weight_slot >= 0) u.weight_slot = &weight_slots_[m.weight_slot];
    if (m.grad_slot >= 0) u.grad_slot = &grad_slots_[m.grad_slot];
    for (auto& flat : m.flats) {
      auto& f = u.flats.emplace_back();
      f.shard = &*shard++;
      bind_flat(f, u, flat);
      bind_groups(f, plan_.units[i], make);
    }
  }
}

Weight Engine::leaf(UnitState& u, std::size_t parameter) {
  const auto& info = u.info->parameters[parameter];
  for (auto& f : u.flats)
    for (std::size_t i = 0; i < f.plan->layout.parameters.size(); ++i) {
      if (f.plan->layout.parameters[i] != static_cast<int>(parameter)) continue;
      const auto offset = f.plan->layout.offsets[i];
      const auto at = [&](const at::Tensor& flat) {
        return over(flat, offset * static_cast<std::int64_t>(flat.element_size()), info.shape, flat.scalar_type());
      };
      Weight w;
      w.frozen = info.frozen;
      w.value = at(f.weights).set_requires_grad(!info.frozen);
      if (!info.frozen) w.grad = at(f.grads);
      w.fresh = &u.fresh[parameter];
      return w;
    }
  fail(Code::internal, "parameter ", info.name, " is in no flat");
}

void Engine::make_positions() {
  for (int index : model_.info.run_order()) {
    auto& p = positions_.emplace_back();
    p.unit_index = index, p.unit = &units_[index];
    for (std::size_t k = 0; k < p.unit->info->parameters.size(); ++k) p.weights.push_back(leaf(*p.unit, k));
    for (auto& name : p.unit->info->borrows)
      for (auto& owner : units_) {
        const auto& parameters = owner.info->parameters;
        const auto it = std::find_if(parameters.begin(), parameters.end(), [&](auto& q) { return q.name == name; });
        if (it == parameters.end()) continue;
        p.borrowed.push_back(&owner);
        p.weights.push_back(leaf(owner, it - parameters.begin()));
      }
    const auto borrowed = p.weights.size() - p.unit->info->parameters.size();
    check(borrowed == p.unit->info->borrows.size(), "unit ", p.unit->info->name, " borrows a parameter nobody owns");
    p.trains = std::any_of(p.weights.begin(), p.weights.end(), [](const Weight& w) { return !w.frozen; });
  }
  const auto first = std::find_if(positions_.begin(), positions_.end(), [](const Position& p) { return p.trains; });
  first_trained_ = first - positions_.begin();
}

}  // namespace shale

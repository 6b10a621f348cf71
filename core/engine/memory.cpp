#include "core/engine/memory.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/comm/topology.h"

namespace shale {
namespace {

constexpr std::int64_t kAlign = 64;  // bytes between the flats of a slot

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
std::int64_t width(at::ScalarType t) { return static_cast<std::int64_t>(c10::elementSize(t)); }

// Parameters of equal precision and frozenness share a flat, in unit order.
std::vector<FlatMemory> make_flats(const UnitInfo& unit, const std::vector<ParameterPrecision>& rows, int index) {
  std::vector<FlatMemory> flats;
  for (std::size_t k = 0; k < unit.parameters.size(); ++k) {
    const auto& p = unit.parameters[k];
    auto it = std::find_if(flats.begin(), flats.end(),
                           [&](const FlatMemory& f) { return f.layout.frozen == p.frozen && f.precision == rows[k]; });
    if (it == flats.end()) {
      flats.push_back({});
      it = flats.end() - 1;
      it->layout.unit = index, it->layout.index = static_cast<int>(flats.size()) - 1;
      it->layout.frozen = p.frozen, it->precision = rows[k];
    }
    it->layout.parameters.push_back(static_cast<int>(k));
    it->layout.offsets.push_back(it->layout.numel);
    it->layout.numel += numel(p.shape);
  }
  return flats;
}

struct Planner {
  const ModelInfo& model;
  const ShardPlan& plan;
  int rank, micro_steps;
  MemoryPlan out;

  void size_flat(FlatMemory& f, const UnitPlan& u);
  void totals(const FlatMemory& f);
  std::size_t ways(int group) const { return members(plan.groups[group], rank).size(); }
  int place_weights(int unit, std::int64_t bytes, std::map<int, int>& turns);
  void place_grads(int unit, const GradSlotBytes& need);
  void keep_pieces();
  void mark_pinned();
  void add_hooks();
};

// The tensors hooks keep, and the scratch of each lane.
void Planner::add_hooks() {
  for (auto& s : plan.states) {
    std::int64_t n = s.scope == StateScope::global || s.scope == StateScope::rank ? s.numel : 0;
    if (s.scope == StateScope::shard || s.scope == StateScope::shard_rank)
      for (auto& unit : out.units)
        for (auto& f : unit.flats)
          if (!f.layout.frozen && (s.unit == kAllUnits || s.unit == f.layout.unit)) n += f.range.length;
    out.states += n * width(s.dtype);
  }
  std::int64_t most = 0;
  for (auto& u : plan.units) most = std::max(most, u.scratch_bytes);
  const auto& own = plan.own;
  out.scratch = most * (own.gather + (own.reduce || own.replicate) + own.outer);
}

void Planner::mark_pinned() {
  std::map<int, int> uses;
  for (int u : model.run_order()) ++uses[u];
  for (auto& [u, n] : uses) out.units[u].pinned = n > 1;
  for (auto& unit : model.units)
    for (auto& name : unit.borrows)
      for (std::size_t owner = 0; owner < model.units.size(); ++owner)
        for (auto& p : model.units[owner].parameters)
          if (p.name == name) out.units[owner].pinned = true;
}

void Planner::size_flat(FlatMemory& f, const UnitPlan& u) {
  const auto group = members(plan.groups[u.shard_group], rank);
  f.ways = static_cast<int>(group.size());
  f.position = static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
  f.range = shard_range(f.layout.numel, f.ways, f.position, u.align);
  const auto& p = f.precision;
  f.whole_weights = f.ways == 1 && p.compute == p.master && p.gather == p.master;
  const bool separate = u.replica_at == SyncAt::micro_step && micro_steps > 1 && u.replica_group != kSelfGroup;
  f.whole_grads = !f.layout.frozen && f.ways == 1 && p.grad == p.accumulate && p.reduce == p.accumulate && !separate;
}

void Planner::totals(const FlatMemory& f) {
  out.masters += f.range.length * width(f.precision.master);
  if (f.layout.frozen) return;
  out.moments += 2 * f.range.length * width(f.precision.moments);
  out.grad_shards += f.range.chunk * width(f.precision.accumulate);
}

// Layers that give their weights back take turns in a few slots; everything else has its own. Parameters used twice are
// not worth a piece: where only a part would be kept, they stay whole.
int Planner::place_weights(int unit, std::int64_t bytes, std::map<int, int>& turns) {
  if (bytes == 0) return -1;
  const auto& u = plan.units[unit];
  const bool part = ways(u.reshard_group) < ways(u.shard_group);
  const bool keeps = u.reshard_group == kSelfGroup || u.gather_at == GatherAt::after_update ||
                     (part && (ways(u.reshard_group) == 1 || out.units[unit].pinned));
  if (model.units[unit].kind != UnitKind::layer || keeps) {
    out.weight_slots.push_back(bytes);
    return static_cast<int>(out.weight_slots.size()) - 1;
  }
  const int k = plan.weight_slots > 0 ? plan.weight_slots : u.prefetch + 1;
  const int turn = static_cast<int>(turns.size() ? turns.rbegin()->first + 1 : 0);
  const int slot = turn < k ? static_cast<int>(out.weight_slots.size()) : turns.at(turn % k);
  turns[turn] = slot;
  if (turn < k) out.weight_slots.push_back(0);
  out.weight_slots[slot] = std::max(out.weight_slots[slot], bytes);
  return slot;
}

// A unit that shares its slot is gathered again before the weights change. When the plan says so, each rank keeps a
// piece of what it gathered first, so that fewer ranks need to talk.
void Planner::keep_pieces() {
  std::map<int, int> tenants;
  for (auto& unit : out.units) ++tenants[unit.weight_slot];
  for (std::size_t i = 0; i < out.units.size(); ++i) {
    const auto group = members(plan.groups[plan.units[i].reshard_group], rank);
    const auto k = static_cast<int>(group.size());
    for (auto& f : out.units[i].flats) {
      if (k == 1 || k >= f.ways || out.units[i].weight_slot < 0 || tenants[out.units[i].weight_slot] == 1) continue;
      f.kept_ways = k;
      f.kept_position = static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
      out.kept += f.kept() * width(plan.own.gather ? f.precision.compute : f.precision.gather);
    }
  }
}

// Layers take turns in a few gradient slots, the wide units in one: their backwards never overlap. What stays open
// across units or micro-steps has its own.
void Planner::place_grads(int unit, const GradSlotBytes& need) {
  if (need.grads == 0) return;
  const auto& u = plan.units[unit];
  auto& memory = out.units[unit];
  const bool own = memory.pinned || (u.reduce_at == SyncAt::boundary && micro_steps > 1);
  const bool layer = model.units[unit].kind == UnitKind::layer;
  const int k = layer ? (plan.grad_slots > 0 ? plan.grad_slots : 2) : 1;
  std::vector<int> sharers;  // slots already taken by units of this class
  if (!own)
    for (int v = 0; v < unit; ++v) {
      const bool like = (model.units[v].kind == UnitKind::layer) == layer && !out.units[v].pinned;
      const bool turns = plan.units[v].reduce_at != SyncAt::boundary || micro_steps == 1;
      if (like && turns && out.units[v].grad_slot >= 0) sharers.push_back(out.units[v].grad_slot);
    }
  if (own || static_cast<int>(sharers.size()) < k) {
    memory.grad_slot = static_cast<int>(out.grad_slots.size());
    out.grad_slots.push_back({});
  } else {
    memory.grad_slot = sharers[sharers.size() % k];
  }
  auto& slot = out.grad_slots[memory.grad_slot];
  slot.grads = std::max(slot.grads, need.grads), slot.wire = std::max(slot.wire, need.wire);
  slot.staging = std::max(slot.staging, need.staging), slot.sum = std::max(slot.sum, need.sum);
}

// Lays the flats of a unit behind one another; returns the bytes of its weights and of its gradient buffers.
std::pair<std::int64_t, GradSlotBytes> lay_out(UnitMemory& unit, bool adds, bool own_reduce) {
  std::int64_t weights = 0;
  GradSlotBytes grads;
  for (auto& f : unit.flats) {
    const auto& p = f.precision;
    f.weight_offset = weights, f.grad_offset = grads.grads;
    f.wire_offset = grads.wire, f.staging_offset = grads.staging, f.sum_offset = grads.sum;
    if (!f.whole_weights) weights += aligned(f.elements() * width(p.compute));
    if (f.layout.frozen || f.whole_grads) continue;
    grads.grads += aligned(f.elements() * width(p.grad));
    if (f.ways > 1 && adds) grads.sum += aligned(f.range.chunk * width(p.accumulate));
    if (own_reduce && f.ways > 1) continue;
    if (p.grad != p.reduce) grads.wire += aligned(f.elements() * width(p.reduce));
    if (f.ways > 1) grads.staging += aligned(f.elements() * width(p.reduce));
  }
  return {weights, grads};
}

}  // namespace

std::int64_t MemoryPlan::slots() const {
  std::int64_t n = 0;
  for (auto bytes : weight_slots) n += bytes;
  return n;
}

std::int64_t MemoryPlan::grads() const {
  std::int64_t n = 0;
  for (auto& g : grad_slots) n += g.grads + g.wire + g.staging + g.sum;
  return n;
}

std::int64_t MemoryPlan::total() const {
  return masters + moments + grad_shards + kept + slots() + grads() + states + scratch;
}

MemoryPlan plan_memory(const ModelInfo& model, const PrecisionTable& precision, const ShardPlan& plan, int rank,
                       int micro_steps) {
  Planner planner{model, plan, rank, micro_steps, {}};
  planner.out.units.resize(model.units.size());
  planner.mark_pinned();
  std::map<int, int> turns;
  for (std::size_t i = 0; i < model.units.size(); ++i) {
    auto& unit = planner.out.units[i];
    const int index = static_cast<int>(i);
    unit.flats = make_flats(model.units[i], precision.units[i], index);
    for (auto& f : unit.flats) {
      planner.size_flat(f, plan.units[i]);
      planner.totals(f);
    }
    const auto& u = plan.units[i];
    // An own reduce adds by itself, unless its result is summed over the replicas before.
    const bool between = u.replica_at == SyncAt::micro_step && u.replica_group != kSelfGroup;
    const bool adds = micro_steps > 1 && u.reduce_at == SyncAt::micro_step && (!plan.own.reduce || between);
    const auto [weights, grads] = lay_out(unit, adds, plan.own.reduce);
    unit.weight_slot = planner.place_weights(index, weights, turns);
    planner.place_grads(index, grads);
  }
  planner.keep_pieces();
  planner.add_hooks();
  return planner.out;
}

}  // namespace shale

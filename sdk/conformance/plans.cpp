#include "plans.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "numbers.h"

namespace shale::conform {
namespace {

template <class Out>
struct Call {  // behind the ctx of a builder
  FakeHost& host;
  Out& out;
  const PlanQuestion& question;
  int calls = 0;

  shale_status* refuse_planned() {
    if (calls++ != question.fail_at) return nullptr;
    return host.make(SHALE_OUT_OF_MEMORY, "builder", "refused on purpose");
  }
  shale_status* bad(const char* where, const std::string& text) { return host.make(SHALE_BAD_ARGUMENT, where, text); }
};

// mine = theirs, cut to my size or filled up with 0
template <class T>
T taken(const T* theirs) {
  T mine{};
  std::memcpy(&mine, theirs, std::min<std::size_t>(theirs->struct_size, sizeof mine));
  mine.struct_size = std::min<std::uint32_t>(theirs->struct_size, sizeof mine);
  return mine;
}

template <class Out>
shale_status* add_state(void* ctx, const shale_state* theirs, std::uint32_t* id) {
  auto& c = *static_cast<Call<Out>*>(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  const shale_state state = taken(theirs);
  *id = static_cast<std::uint32_t>(c.out.states.size());
  c.out.states.push_back({{state.name.ptr, state.name.len},
                          state.scope,
                          state.unit,
                          state.numel,
                          state.dtype,
                          state.first,
                          state.on_reshape,
                          state.fill});
  return nullptr;
}

using ShardingCall = Call<ShardingAnswer>;
ShardingCall& sharding(void* ctx) { return *static_cast<ShardingCall*>(ctx); }

std::vector<std::uint32_t> normal(const std::vector<std::uint32_t>& color) {  // parts numbered by first member
  std::map<std::uint32_t, std::uint32_t> number;
  std::vector<std::uint32_t> out;
  for (auto c : color) out.push_back(number.emplace(c, static_cast<std::uint32_t>(number.size())).first->second);
  return out;
}

std::uint32_t group_of(ShardingAnswer& out, const std::vector<std::uint32_t>& color) {
  const auto parts = normal(color);
  const auto found = std::find(out.groups.begin(), out.groups.end(), parts);
  if (found != out.groups.end()) return static_cast<std::uint32_t>(found - out.groups.begin());
  out.groups.push_back(parts);
  return static_cast<std::uint32_t>(out.groups.size() - 1);
}

shale_status* add_parts(void* ctx, std::uint32_t n, bool blocks, std::uint32_t* group) {
  auto& c = sharding(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  const auto world = c.question.topology.world();
  if (n == 0 || world % n != 0) return c.bad(blocks ? "block" : "stride", "must divide " + std::to_string(world));
  std::vector<std::uint32_t> color(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) color[rank] = blocks ? rank / n : rank % n;
  *group = group_of(c.out, color);
  return nullptr;
}
shale_status* add_blocks(void* ctx, std::uint32_t n, std::uint32_t* group) { return add_parts(ctx, n, true, group); }
shale_status* add_strides(void* ctx, std::uint32_t n, std::uint32_t* group) { return add_parts(ctx, n, false, group); }

shale_status* add_colors(void* ctx, const std::uint32_t* color, std::uint32_t n, std::uint32_t* group) {
  auto& c = sharding(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  if (n != c.question.topology.world()) return c.bad("n", "must be the number of ranks");
  *group = group_of(c.out, {color, color + n});
  return nullptr;
}

shale_status* set_unit(void* ctx, std::uint32_t unit, const shale_unit_plan* plan) {
  auto& c = sharding(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  if (unit != SHALE_ALL_UNITS && unit >= c.out.units.size()) return c.bad("unit", "there is no such unit");
  for (std::uint32_t k = 0; k < c.out.units.size(); ++k)
    if (unit == SHALE_ALL_UNITS || unit == k) c.out.units[k] = taken(plan);
  return nullptr;
}

shale_status* set_slots(void* ctx, std::uint32_t weights, std::uint32_t gradients) {
  auto& c = sharding(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  c.out.weight_slots = weights, c.out.grad_slots = gradients;
  return nullptr;
}

using PrecisionCall = Call<PrecisionAnswer>;
PrecisionCall& precision(void* ctx) { return *static_cast<PrecisionCall*>(ctx); }

shale_status* set_param(void* ctx, std::uint32_t param, const shale_param_precision* p) {
  auto& c = precision(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  if (param != SHALE_ALL_PARAMS && param >= c.out.params.size()) return c.bad("param", "there is no such parameter");
  for (std::uint32_t k = 0; k < c.out.params.size(); ++k)
    if (param == SHALE_ALL_PARAMS || param == k) c.out.params[k] = taken(p);
  return nullptr;
}
shale_status* set_linear(void* ctx, std::uint32_t, const shale_linear_recipe*) {
  auto& c = precision(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  ++c.out.recipes;
  return nullptr;
}
shale_status* set_loss_scale(void* ctx, const shale_loss_scale* scale) {
  auto& c = precision(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  c.out.loss_scale = taken(scale);
  return nullptr;
}

using OffloadCall = Call<OffloadAnswer>;
OffloadCall& offload(void* ctx) { return *static_cast<OffloadCall*>(ctx); }

shale_status* place(void* ctx, std::uint32_t unit, std::uint32_t memory_class, std::uint32_t tier) {
  auto& c = offload(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  if (unit != SHALE_ALL_UNITS && unit >= c.out.tiers.size()) return c.bad("unit", "there is no such unit");
  if (memory_class >= SHALE_N_CLASSES) return c.bad("memory_class", "there is no such class");
  for (std::uint32_t k = 0; k < c.out.tiers.size(); ++k)
    if (unit == SHALE_ALL_UNITS || unit == k) c.out.tiers[k][memory_class] = tier;
  return nullptr;
}
shale_status* set_pipeline(void* ctx, std::uint64_t tile_bytes, std::uint32_t depth, std::uint32_t) {
  auto& c = offload(ctx);
  if (shale_status* s = c.refuse_planned()) return s;
  c.out.tile_bytes = tile_bytes, c.out.depth = depth;
  return nullptr;
}

template <class... N>
std::string row(const char* name, N... numbers) {
  std::string out = name;
  ((out += " " + std::to_string(numbers)), ...);
  return out + "\n";
}

std::string text_of(const std::vector<StateAnswer>& states) {
  std::string out;
  for (auto& s : states)
    out += "state " + s.name + row("", s.scope, s.unit, s.numel, s.dtype, s.first, s.on_reshape, s.fill);
  return out;
}

// Size of the parts of a group; 0 when they differ.
std::size_t part_size(const std::vector<std::uint32_t>& color) {
  std::map<std::uint32_t, std::size_t> sizes;
  for (auto c : color) ++sizes[c];
  for (auto& [part, size] : sizes)
    if (size != sizes.begin()->second) return 0;
  return sizes.begin()->second;
}

std::string unit_problem(const shale_unit_plan& u, const ShardingAnswer& plan) {
  for (auto group : {u.shard_group, u.replica_group, u.reshard_group})
    if (group >= plan.groups.size()) return "names group " + std::to_string(group) + ", which does not exist";
  if (u.gather_at > SHALE_GATHER_AFTER_UPDATE || u.reduce_at > SHALE_AT_BOUNDARY || u.replica_at > SHALE_NEVER)
    return "has an unknown gather_at, reduce_at or replica_at";
  if (u.gather_at == SHALE_GATHER_AFTER_UPDATE && u.reshard_group != SHALE_GROUP_SELF)
    return "is gathered after the update but does not keep its weights";
  const auto &shard = plan.groups[u.shard_group], &replica = plan.groups[u.replica_group];
  const auto &kept = plan.groups[u.reshard_group], &self = plan.groups[SHALE_GROUP_SELF];
  if (part_size(shard) == 0 || part_size(replica) == 0 || part_size(kept) == 0) return "has parts of unequal size";
  if (kept != self)
    for (std::size_t rank = 0; rank < kept.size(); ++rank)
      for (std::size_t other = 0; other < kept.size(); ++other)
        if (kept[rank] == kept[other] && shard[rank] != shard[other])
          return "keeps weights over ranks outside of its shard group";
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::size_t rank = 0; rank < shard.size(); ++rank)
    if (!seen.insert({shard[rank], replica[rank]}).second) return "would sum some gradients twice";
  if (u.replica_at != SHALE_NEVER && part_size(shard) * part_size(replica) != shard.size())
    return "does not sum gradients over all ranks";
  if (u.outer_every != 0 && u.outer_delay >= u.outer_every) return "has outer_delay >= outer_every";
  return "";
}

}  // namespace

std::vector<std::uint32_t> ShardingAnswer::part(std::uint32_t group, std::uint32_t rank) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t other = 0; other < groups[group].size(); ++other)
    if (groups[group][other] == groups[group][rank]) ranks.push_back(other);
  return ranks;
}

std::string ShardingAnswer::text() const {
  std::string out = row("slots", weight_slots, grad_slots);
  for (auto& group : groups) {
    out += "group";
    for (auto c : group) out += " " + std::to_string(c);
    out += "\n";
  }
  for (auto& u : units)
    out +=
        !u ? "unit not set\n"
           : row("unit", u->shard_group, u->replica_group, u->reshard_group, u->gather_at, u->reduce_at, u->replica_at,
                 u->prefetch, u->align, u->outer_every, u->outer_offset, u->outer_delay, u->scratch_bytes);
  return out + text_of(states);
}

std::string PrecisionAnswer::text() const {
  std::string out = row("recipes", recipes);
  for (auto& p : params)
    out += !p ? "parameter not set\n"
              : row("parameter", p->master, p->compute, p->gather, p->grad, p->reduce, p->accumulate, p->moments,
                    p->master_rounding, p->moments_block);
  if (loss_scale) out += row("loss scale", loss_scale->initial, loss_scale->growth, loss_scale->growth_steps);
  return out + text_of(states);
}

std::string OffloadAnswer::text() const {
  std::string out = row("pipeline", tile_bytes, depth);
  for (auto& t : tiers) out += row("unit", t[0], t[1], t[2], t[3], t[4], t[5]);
  return out;
}

Answer ask(const Instance& plugin, const PlanQuestion& q, ShardingAnswer& out) {
  out = {};
  std::vector<std::uint32_t> self(q.topology.world()), world(q.topology.world(), 0);
  for (std::uint32_t rank = 0; rank < self.size(); ++rank) self[rank] = rank;
  out.groups = {self, world};
  out.units.resize(q.model.get()->n_units);
  ShardingCall call{plugin.host(), out, q};
  const shale_sharding_builder b{
      sizeof b, 0, &call, add_blocks, add_strides, add_colors, set_unit, set_slots, add_state<ShardingAnswer>};
  const auto& table = plugin.table<shale_sharding>(SHALE_SHARDING);
  return plugin.host().take(table.plan(plugin.self(), q.model.get(), q.topology.get(), &b));
}

Answer ask(const Instance& plugin, const PlanQuestion& q, PrecisionAnswer& out) {
  out = {};
  out.params.resize(q.model.n_params());
  PrecisionCall call{plugin.host(), out, q};
  const shale_precision_builder b{
      sizeof b, 0, &call, set_param, set_linear, set_loss_scale, add_state<PrecisionAnswer>};
  const auto& table = plugin.table<shale_precision>(SHALE_PRECISION);
  return plugin.host().take(table.plan(plugin.self(), q.model.get(), q.topology.get(), &b));
}

Answer ask(const Instance& plugin, const PlanQuestion& q, OffloadAnswer& out) {
  out = {};
  const auto n = q.model.get()->n_units;
  out.tiers.assign(n, {});
  OffloadCall call{plugin.host(), out, q};
  const shale_offload_builder b{sizeof b, 0, &call, place, set_pipeline};
  const std::vector<std::uint64_t> bytes(std::size_t{n} * SHALE_N_CLASSES, std::uint64_t{1} << 20);
  const shale_offload_ask ask{sizeof ask, n, SHALE_N_CLASSES, 0, bytes.data(), std::uint64_t{1} << 24, 0};
  const auto& table = plugin.table<shale_offload>(SHALE_OFFLOAD);
  return plugin.host().take(table.plan(plugin.self(), q.model.get(), q.topology.get(), &ask, &b));
}

std::vector<std::string> problems(const ShardingAnswer& plan, const FakeModel& model) {
  std::vector<std::string> out;
  for (std::uint32_t k = 0; k < model.get()->n_units; ++k) {
    const std::string name = "unit " + std::to_string(k) + " ";
    if (!plan.units[k]) {
      out.push_back(name + "was not set");
    } else if (auto problem = unit_problem(*plan.units[k], plan); !problem.empty()) {
      out.push_back(name + problem);
    }
  }
  return out;
}

std::vector<std::string> problems(const PrecisionAnswer& plan, const FakeModel&) {
  std::vector<std::string> out;
  for (std::uint32_t k = 0; k < plan.params.size(); ++k) {
    const std::string name = "parameter " + std::to_string(k) + " ";
    const auto& p = plan.params[k];
    if (!p) {
      out.push_back(name + "was not set");
      continue;
    }
    for (auto dtype : {p->master, p->compute, p->gather, p->grad, p->reduce, p->accumulate})
      if (!is_float(dtype)) out.push_back(name + "has a role with dtype " + std::to_string(dtype));
    if (p->accumulate != SHALE_F32 && p->accumulate != SHALE_F64)
      out.push_back(name + "accumulates in less than 32 bits");
    if (p->moments == 0) out.push_back(name + "has no dtype for moments");
    if (SHALE_DTYPE_BITS(p->gather) > SHALE_DTYPE_BITS(p->compute))
      out.push_back(name + "is gathered in a wider dtype than it is computed in");
  }
  return out;
}

std::vector<std::string> problems(const OffloadAnswer& plan, const FakeModel&) {
  std::vector<std::string> out;
  for (std::uint32_t k = 0; k < plan.tiers.size(); ++k)
    for (std::uint32_t c = 0; c < SHALE_N_CLASSES; ++c) {
      const auto tier = plan.tiers[k][c];
      const bool stored = tier == SHALE_TIER_STORE && c == SHALE_CLASS_SHADOW;
      if (tier > SHALE_TIER_STORE || stored)
        out.push_back("unit " + std::to_string(k) + ", class " + std::to_string(c) + ": tier " + std::to_string(tier) +
                      " is not possible");
    }
  return out;
}

}  // namespace shale::conform

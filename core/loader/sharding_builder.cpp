#include "core/loader/sharding_builder.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/loader/dtypes.h"

namespace shale {
namespace {

constexpr std::uint32_t kMostGroups = 1024, kMostAhead = 65536, kMostSteps = 1u << 30;
constexpr std::size_t kMostStates = 256, kLongestName = 64;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

// Colors renamed in order of first appearance: equal partitions become equal values.
Partition normal(const Partition& colors) {
  std::map<std::uint32_t, std::uint32_t> names;
  Partition out;
  for (const std::uint32_t c : colors)
    out.push_back(names.emplace(c, static_cast<std::uint32_t>(names.size())).first->second);
  return out;
}

// Numbers whose first values the core can write and that snapshots hold exactly.
bool keepable(std::uint32_t dtype) {
  constexpr std::uint32_t kKept[] = {SHALE_F64, SHALE_F32, SHALE_BF16, SHALE_F16, SHALE_I64,
                                     SHALE_I32, SHALE_I16, SHALE_I8,   SHALE_U8};
  return std::find(std::begin(kKept), std::end(kKept), dtype) != std::end(kKept);
}

bool is_float(std::uint32_t dtype) {
  return dtype == SHALE_F64 || dtype == SHALE_F32 || dtype == SHALE_BF16 || dtype == SHALE_F16;
}

bool per_shard(std::uint32_t scope) { return scope == SHALE_STATE_SHARD || scope == SHALE_STATE_SHARD_RANK; }

bool good_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

// A whole number that the integer type holds; any float will do for floats.
bool fits(double fill, std::uint32_t dtype) {
  if (is_float(dtype)) return true;
  const double most = std::ldexp(1.0, static_cast<int>(SHALE_DTYPE_BITS(dtype)) - (dtype == SHALE_U8 ? 0 : 1));
  return fill == std::floor(fill) && fill < most && fill >= (dtype == SHALE_U8 ? 0 : -most);
}

}  // namespace

// First argument of each is the builder.
struct ShardingBuilder::Calls {
  static ShardingBuilder& me(void* ctx) { return *static_cast<ShardingBuilder*>(ctx); }

  template <class F>
  static shale_status* add_even(void* ctx, const char* argument, std::uint32_t size, std::uint32_t* group,
                                F&& color_of) {
    ShardingBuilder& b = me(ctx);
    return b.answer([&]() -> shale_status* {
      if (size == 0 || b.world_ % size != 0)
        return bad_argument(argument, str("must divide the world, ", b.world_, " (got ", size, ")"));
      Partition colors;
      for (std::uint32_t r = 0; r < b.world_; ++r) colors.push_back(color_of(r));
      return b.add(colors, group);
    });
  }
  static shale_status* add_blocks(void* ctx, std::uint32_t block, std::uint32_t* group) {
    return add_even(ctx, "block", block, group, [&](std::uint32_t r) { return r / block; });
  }
  static shale_status* add_strides(void* ctx, std::uint32_t stride, std::uint32_t* group) {
    return add_even(ctx, "stride", stride, group, [&](std::uint32_t r) { return r % stride; });
  }
  static shale_status* add_colors(void* ctx, const std::uint32_t* color, std::uint32_t n, std::uint32_t* group) {
    ShardingBuilder& b = me(ctx);
    return b.answer([&]() -> shale_status* {
      if (color == nullptr) return bad_argument("color", "is NULL");
      if (n != b.world_) return bad_argument("n", str("must be the world, ", b.world_, " (got ", n, ")"));
      return b.add(Partition(color, color + n), group);
    });
  }
  static shale_status* set_unit(void* ctx, std::uint32_t unit, const shale_unit_plan* plan) {
    return me(ctx).answer([&] { return me(ctx).set(unit, plan); });
  }
  static shale_status* set_slots(void* ctx, std::uint32_t weights, std::uint32_t gradients) {
    ShardingBuilder& b = me(ctx);
    return b.answer([&]() -> shale_status* {
      if (weights > kMostAhead)
        return bad_argument("weights", str("must be at most ", kMostAhead, " (got ", weights, ")"));
      if (gradients > kMostAhead)
        return bad_argument("gradients", str("must be at most ", kMostAhead, " (got ", gradients, ")"));
      b.weights_ = static_cast<int>(weights), b.gradients_ = static_cast<int>(gradients);
      return nullptr;
    });
  }
  static shale_status* add_state(void* ctx, const shale_state* theirs, std::uint32_t* state) {
    return me(ctx).answer([&] { return me(ctx).add_state(theirs, state); });
  }
};

ShardingBuilder::ShardingBuilder(std::size_t units, int world, bool has_outer)
    : world_(static_cast<std::uint32_t>(world)), has_outer_(has_outer), units_(units), set_(units, false) {
  groups_ = {self_partition(world), world_partition(world)};
  c_ = {sizeof c_,
        0,
        this,
        Calls::add_blocks,
        Calls::add_strides,
        Calls::add_colors,
        Calls::set_unit,
        Calls::set_slots,
        Calls::add_state};
}

ShardPlan ShardingBuilder::take_plan(const PluginInstance& plugin, const ModelInfo& model) {
  finish(plugin, "plan");
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (!set_[u])
      plugin.refuse(Code::config, str("plan: no numbers were given for unit ", u, " (", model.units[u].name,
                                      "); every unit needs set_unit: a bug of the plugin"));
  ShardPlan plan;
  plan.groups = std::move(groups_), plan.units = std::move(units_), plan.states = std::move(states_);
  plan.weight_slots = weights_, plan.grad_slots = gradients_;
  return plan;
}

shale_status* ShardingBuilder::add(const Partition& colors, std::uint32_t* group) {
  if (group == nullptr) return bad_argument("group", "is NULL");
  const Partition wanted = normal(colors);
  const auto known = std::find(groups_.begin(), groups_.end(), wanted);
  *group = static_cast<std::uint32_t>(known - groups_.begin());
  if (known != groups_.end()) return nullptr;
  if (groups_.size() == kMostGroups) return unsupported("group", str("more than ", kMostGroups, " groups"));
  groups_.push_back(wanted);
  return nullptr;
}

shale_status* ShardingBuilder::check_groups(const shale_unit_plan& p) const {
  for (const auto& [name, group] : {std::pair{"shard_group", p.shard_group},
                                    {"replica_group", p.replica_group},
                                    {"reshard_group", p.reshard_group}})
    if (group >= groups_.size())
      return bad_argument(name, str("is ", group, ", an id that no add_... gave (there are ", groups_.size(), ")"));
  return nullptr;
}

shale_status* ShardingBuilder::check_numbers(const shale_unit_plan& p) const {
  if (p.gather_at > SHALE_GATHER_AFTER_UPDATE) return bad_argument("gather_at", str("is ", p.gather_at));
  if (p.reduce_at > SHALE_AT_BOUNDARY) return bad_argument("reduce_at", str("is ", p.reduce_at));
  if (p.replica_at > SHALE_NEVER) return bad_argument("replica_at", str("is ", p.replica_at));
  if (p.prefetch > kMostAhead) return bad_argument("prefetch", str("is ", p.prefetch));
  if (p.align > (1u << 30)) return bad_argument("align", str("is ", p.align));
  if (p.scratch_bytes > kMostBytes) return bad_argument("scratch_bytes", str("is ", p.scratch_bytes));
  if (p.join > 1) return bad_argument("join", str("is ", p.join, ", must be 0 or 1"));
  return nullptr;
}

shale_status* ShardingBuilder::check_outer(const shale_unit_plan& p) const {
  if (p.replica_at == SHALE_NEVER && !has_outer_)
    return unsupported("replica_at", "NEVER needs shale.sharding.outer/1, which the plugin does not bring");
  if (p.outer_every != 0 && !has_outer_)
    return unsupported("outer_every", "needs shale.sharding.outer/1, which the plugin does not bring");
  if (p.outer_every > kMostSteps) return bad_argument("outer_every", str("is ", p.outer_every));
  if (p.outer_offset > kMostSteps) return bad_argument("outer_offset", str("is ", p.outer_offset));
  if (p.outer_delay != 0 && p.outer_delay >= p.outer_every)
    return bad_argument("outer_delay",
                        str("must be less than outer_every, ", p.outer_every, " (got ", p.outer_delay, ")"));
  return nullptr;
}

shale_status* ShardingBuilder::set(std::uint32_t unit, const shale_unit_plan* theirs) {
  if (unit != SHALE_ALL_UNITS && unit >= units_.size())
    return bad_argument("unit", str("is ", unit, ", the model has ", units_.size(), " units"));
  shale_unit_plan p;
  if (!take(theirs, p))
    return bad_argument("plan",
                        str("has ", theirs ? size_of(theirs) : 0, " bytes, ABI 0.1 has ", kBaseline<shale_unit_plan>));
  if (auto* problem = check_groups(p)) return problem;
  if (auto* problem = check_numbers(p)) return problem;
  if (auto* problem = check_outer(p)) return problem;
  UnitPlan plan;
  plan.shard_group = static_cast<int>(p.shard_group), plan.replica_group = static_cast<int>(p.replica_group);
  plan.reshard_group = static_cast<int>(p.reshard_group);
  plan.gather_at = static_cast<GatherAt>(p.gather_at);
  plan.reduce_at = static_cast<SyncAt>(p.reduce_at), plan.replica_at = static_cast<SyncAt>(p.replica_at);
  plan.prefetch = static_cast<int>(p.prefetch), plan.align = std::max<std::int64_t>(p.align, 1);
  plan.join = p.join != 0;
  plan.outer_every = static_cast<int>(p.outer_every), plan.outer_offset = static_cast<int>(p.outer_offset);
  plan.outer_delay = static_cast<int>(p.outer_delay);
  plan.scratch_bytes = static_cast<std::int64_t>(p.scratch_bytes);
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (unit == SHALE_ALL_UNITS || unit == u) units_[u] = plan, set_[u] = true;
  return nullptr;
}

shale_status* ShardingBuilder::check_state(const shale_state& s) const {
  if (s.name.len > kLongestName || !good_name(to_text(s.name)))
    return bad_argument("name", str("must be 1..", kLongestName, " of a-z, 0-9 and _ (got \"",
                                    s.name.len > kLongestName ? "..." : one_line(to_text(s.name)), "\")"));
  const std::string name = to_text(s.name);
  if (std::any_of(states_.begin(), states_.end(), [&](const StateSpec& known) { return known.name == name; }))
    return bad_argument("name", str("\"", name, "\" is there already"));
  if (s.scope > SHALE_STATE_SHARD_RANK) return bad_argument("scope", str("of ", name, " is ", s.scope));
  if (s.unit != SHALE_ALL_UNITS && s.unit >= units_.size())
    return bad_argument("unit", str("of ", name, " is ", s.unit, ", the model has ", units_.size(), " units"));
  if (!keepable(s.dtype))
    return bad_argument("dtype", str("of ", name, " is ", s.dtype, "; a state is of F64, F32, BF16, F16 or integers"));
  if (s.on_reshape > SHALE_RESHAPE_REFUSE) return bad_argument("on_reshape", str("of ", name, " is ", s.on_reshape));
  if (s.on_host > 1) return bad_argument("on_host", str("of ", name, " is ", s.on_host, ", must be 0 or 1"));
  if (per_shard(s.scope) && s.numel != 0)
    return bad_argument("numel", str("of ", name, " is ", s.numel, "; in the shard scopes the core knows it: leave 0"));
  if (!per_shard(s.scope) && (s.numel == 0 || s.numel > kMostBytes))
    return bad_argument("numel", str("of ", name, " is ", s.numel, ", must be 1..2^48"));
  return check_first(s);
}

shale_status* ShardingBuilder::check_first(const shale_state& s) const {
  const std::string name = to_text(s.name);
  if (s.first > SHALE_STATE_NORMAL) return bad_argument("first", str("of ", name, " is ", s.first));
  if (s.first != SHALE_STATE_FILL && !is_float(s.dtype))
    return bad_argument("first", str("of ", name, ": only floats can begin as MASTER or NORMAL"));
  if (s.first == SHALE_STATE_MASTER && !per_shard(s.scope))
    return bad_argument("first", str("of ", name, ": MASTER needs scope SHARD or SHARD_RANK"));
  if (s.first == SHALE_STATE_FILL && !fits(s.fill, s.dtype))
    return bad_argument("fill", str("of ", name, " is ", s.fill, ", which its dtype does not hold"));
  return nullptr;
}

shale_status* ShardingBuilder::add_state(const shale_state* theirs, std::uint32_t* state) {
  shale_state s;
  if (!take(theirs, s))
    return bad_argument("state",
                        str("has ", theirs ? size_of(theirs) : 0, " bytes, ABI 0.1 has ", kBaseline<shale_state>));
  if (state == nullptr) return bad_argument("state", "is NULL");
  if (auto* problem = check_state(s)) return problem;
  if (states_.size() == kMostStates) return unsupported("state", str("more than ", kMostStates, " states"));
  StateSpec spec;
  spec.name = to_text(s.name);
  spec.scope = static_cast<StateScope>(s.scope), spec.first = static_cast<StateFirst>(s.first);
  spec.unit = s.unit == SHALE_ALL_UNITS ? kAllUnits : static_cast<int>(s.unit);
  spec.dtype = *dtype_from_c(s.dtype), spec.fill = s.first == SHALE_STATE_FILL ? s.fill : 0;
  spec.refuse_reshape = s.on_reshape == SHALE_RESHAPE_REFUSE, spec.numel = static_cast<std::int64_t>(s.numel);
  *state = static_cast<std::uint32_t>(states_.size());
  states_.push_back(std::move(spec));
  return nullptr;
}

}  // namespace shale

#include "core/sharding/plan.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace shale {
namespace {

void check_group(int group, const ShardPlan& plan, const UnitInfo& unit, const char* what) {
  if (group < 0 || group >= static_cast<int>(plan.groups.size()))
    fail(Code::config, "[sharding] the plan of unit ", unit.name, " names ", what, " ", group, ", but there are only ",
         plan.groups.size(), " groups: a bug of the plugin");
}

// Every part of a group has the same number of ranks; returns it.
std::size_t part_size(const Partition& group, const std::string& unit, const char* what) {
  std::map<std::uint32_t, std::size_t> sizes;
  for (auto color : group) ++sizes[color];
  for (auto& [color, size] : sizes)
    if (size != sizes.begin()->second)
      fail(Code::config, "[sharding] the ", what, " of unit ", unit, " has parts of ", sizes.begin()->second, " and ",
           size, " ranks; all parts must be of one size");
  return sizes.begin()->second;
}

// shard part x replica part must be the whole world, each rank once: gradients are summed over both.
void check_scope(const UnitPlan& u, const ShardPlan& plan, const UnitInfo& unit, int world) {
  const auto& shard = plan.groups[u.shard_group];
  const auto& replica = plan.groups[u.replica_group];
  const auto s = part_size(shard, unit.name, "shard group"), r = part_size(replica, unit.name, "replica group");
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> seen;
  for (int rank = 0; rank < world; ++rank)
    if (seen[{shard[rank], replica[rank]}]++)
      fail(Code::config, "[sharding] in the plan of unit ", unit.name, " two ranks share both their shard group and ",
           "their replica group, so a gradient would be counted twice");
  if (s * r != static_cast<std::size_t>(world))
    fail(Code::config, "[sharding] the plan of unit ", unit.name, " sums gradients over ", s, " x ", r,
         " ranks, not over the ", world, " ranks of the run");
}

// What the strategy does itself, and what the engine can do around it.
void check_own_work(const UnitPlan& u, const ShardPlan& plan, const UnitInfo& unit, const Topology& topology) {
  const bool replicas = plan.groups[u.replica_group] != plan.groups[kSelfGroup];
  if (u.join && plan.own.any())
    fail(Code::config, "[sharding] unit ", unit.name, " is joined with the unit before it, but the strategy brings ",
         "hooks of its own, which work on one unit: leave join 0");
  if (plan.own.replicate && replicas && u.replica_at == SyncAt::micro_step && topology.micro_steps > 1)
    fail(Code::config, "[sharding] unit ", unit.name, " sums its replicas by a hook of the strategy at each of ",
         topology.micro_steps, " micro-steps; such a sum can be made once per step only: replica_at must be boundary");
  if (u.outer_every < 0 || u.outer_offset < 0 || u.outer_delay < 0 || u.scratch_bytes < 0 ||
      (u.outer_every > 0 && u.outer_delay >= u.outer_every))
    fail(Code::config, "[sharding] unit ", unit.name, " has outer_every ", u.outer_every, ", outer_offset ",
         u.outer_offset, ", outer_delay ", u.outer_delay, " and scratch_bytes ", u.scratch_bytes,
         "; none may be negative, and the delay must be less than every");
  if (u.outer_every > 0 && !plan.own.outer)
    fail(Code::config, "[sharding] unit ", unit.name, " wants outer work every ", u.outer_every,
         " steps, but the strategy has no shale.sharding.outer/1");
  if (u.replica_at == SyncAt::never && !plan.own.outer)
    fail(Code::config, "[sharding] unit ", unit.name, " never sums its replicas, but the strategy has no ",
         "shale.sharding.outer/1 that brings them together");
  if (u.replica_at == SyncAt::never && replicas && u.outer_every == 0)
    fail(Code::config, "[sharding] unit ", unit.name, " never sums its replicas and has no outer work ",
         "(outer_every 0): they would drift apart for good");
}

// Replicas that are never summed: the sync scope is the shard part, and there is one scope for all units.
void check_one_scope(const ShardPlan& plan, const ModelInfo& model) {
  const auto has_replicas = [&](const UnitPlan& u) { return plan.groups[u.replica_group] != plan.groups[kSelfGroup]; };
  const auto never = [&](const UnitPlan& u) { return u.replica_at == SyncAt::never && has_replicas(u); };
  const auto first = std::find_if(plan.units.begin(), plan.units.end(), never);
  if (first == plan.units.end()) return;
  const std::string& name = model.units[first - plan.units.begin()].name;
  for (std::size_t i = 0; i < plan.units.size(); ++i) {
    const UnitPlan& u = plan.units[i];
    if (has_replicas(u) && !never(u))
      fail(Code::config, "[sharding] unit ", name, " never sums its replicas, but unit ", model.units[i].name,
           " does; all units must do the same");
    if (plan.groups[u.shard_group] != plan.groups[first->shard_group])
      fail(Code::config, "[sharding] units ", name, " and ", model.units[i].name, " have different shard groups; ",
           "where replicas are never summed it must be one for all units");
  }
}

// Ranks that keep pieces of a unit between its uses must have gathered the same thing.
void check_reshard(const UnitPlan& u, const ShardPlan& plan, const UnitInfo& unit) {
  const auto& reshard = plan.groups[u.reshard_group];
  const auto& shard = plan.groups[u.shard_group];
  std::map<std::uint32_t, std::size_t> first;  // rank of each part
  for (std::size_t rank = 0; rank < reshard.size(); ++rank) {
    const auto other = first.emplace(reshard[rank], rank).first->second;
    if (shard[rank] != shard[other])
      fail(Code::config, "[sharding] the reshard group of unit ", unit.name, " puts ranks ", other, " and ", rank,
           " together, which are in different shard groups; it must be a finer partition than the shard group");
  }
  part_size(reshard, unit.name, "reshard group");
}

void validate_unit(const UnitPlan& u, const ShardPlan& plan, const UnitInfo& unit, const Topology& topology) {
  check_group(u.shard_group, plan, unit, "shard group");
  check_group(u.replica_group, plan, unit, "replica group");
  check_group(u.reshard_group, plan, unit, "reshard group");
  if (u.reduce_at == SyncAt::never)
    fail(Code::config, "[sharding] the plan of unit ", unit.name, " never sums its gradients over its shard group");
  if (u.gather_at == GatherAt::after_update && u.reshard_group != kSelfGroup)
    fail(Code::config, "[sharding] unit ", unit.name, " is gathered after the update, so it must keep its weights ",
         "(reshard group self)");
  if (u.prefetch < 0 || u.align < 1)
    fail(Code::config, "[sharding] unit ", unit.name, " has prefetch ", u.prefetch, " and align ", u.align,
         "; they must be at least 0 and 1");
  check_scope(u, plan, unit, topology.world);
  check_own_work(u, plan, unit, topology);
  check_reshard(u, plan, unit);
}

}  // namespace

void validate(const ShardPlan& plan, const ModelInfo& model, const Topology& topology) {
  if (plan.units.size() != model.units.size())
    fail(Code::config, "[sharding] the plan has ", plan.units.size(), " units, the model ", model.units.size());
  if (plan.groups.size() < 2) fail(Code::config, "[sharding] the plan lacks the groups self and world");
  for (auto& group : plan.groups)
    if (group.size() != static_cast<std::size_t>(topology.world))
      fail(Code::config, "[sharding] a group of the plan has ", group.size(), " ranks, the run ", topology.world);
  if (plan.weight_slots < 0 || plan.grad_slots < 0)
    fail(Code::config, "[sharding] the plan asks for ", plan.weight_slots, " weight and ", plan.grad_slots,
         " gradient slots");
  for (std::size_t i = 0; i < plan.units.size(); ++i) validate_unit(plan.units[i], plan, model.units[i], topology);
  check_one_scope(plan, model);
}

std::string ShardPlan::text() const {
  std::string out = str("slots ", weight_slots, " ", grad_slots, "\n");
  for (auto& group : groups) {
    out += "group";
    for (auto color : group) out += str(" ", color);
    out += "\n";
  }
  for (auto& u : units)
    out += str("unit ", u.shard_group, " ", u.replica_group, " ", u.reshard_group, " ", static_cast<int>(u.gather_at),
               " ", static_cast<int>(u.reduce_at), " ", static_cast<int>(u.replica_at), " ", u.prefetch, " ", u.align,
               " ", u.join, " ", u.outer_every, " ", u.outer_offset, " ", u.outer_delay, " ", u.scratch_bytes, "\n");
  for (auto& s : states)
    out += str("state ", s.name, " ", static_cast<int>(s.scope), " ", s.unit, " ", c10::toString(s.dtype), " ",
               static_cast<int>(s.first), " ", s.fill, " ", s.refuse_reshape, " ", s.numel, "\n");
  out += str("own ", own.gather, " ", own.reduce, " ", own.replicate, " ", own.step_end, " ", own.outer, "\n");
  return out;
}

}  // namespace shale

// Its own gather, reduction, replication and outer step, each with a fault: full_shard, or with where = "replicate"
// whole copies.
#include <algorithm>

#include "fault.h"
#include "shale/hooks.hpp"

namespace faulty {

class Hooks : public Sharding, public Exchange, public Outer {
 public:
  static constexpr Info info{
      .id = "faulty_hooks", .version = "1.0.0", .summary = "hooks that fail when told to", .caps = SHALE_CAP_CPU};
  static constexpr shale_option options[] = {
      kAction, kRank, kStep,
      choice("where", "gather", "gather|reduce|replicate|step_end|begin|apply", "the hook it happens in")};
  static constexpr auto& needs = hook_services;
  static const shale_exchange exchange;
  static const shale_outer outer;
  explicit Hooks(const Context& c) : Sharding(c), fault_(*this) {}

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    std::uint64_t most = 0;
    for (std::uint32_t k = 0; k < model.n_units; ++k) most = std::max(most, model.units[k]->numel);
    SHALE_VAR(shale_unit_plan, u);
    if (config.text("where") == "replicate") {
      u.replica_group = SHALE_GROUP_WORLD;
    } else {
      u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
    }
    u.scratch_bytes = 8 * (most + topology.world);
    u.outer_every = 1;
    to.units(u);
  }

  void gather(const shale_exchange_call& c, const shale_tensor& shard, const shale_tensor& full) {
    fault_.at("gather", c.step);
    const std::uint64_t piece = static_cast<std::uint64_t>(full.shape[0]) / c.ways;
    const auto have = static_cast<std::uint64_t>(shard.shape[0]);
    const shale_tensor mine = shale_range(&full, tools_.rank(c.group) * piece, piece);
    const shale_tensor rest = shale_range(&mine, have, piece - have);
    tools_.copy(c.lane, shale_range(&mine, 0, have), shard);
    tools_.axpby(c.lane, 0, rest, 0, rest);
    if (!fault_.skips("gather", c.step)) tools_.all_gather(c.lane, c.group, mine, full);
  }

  void reduce(const shale_exchange_call& c, const shale_tensor& full, const shale_tensor& shard) {
    fault_.at("reduce", c.step);
    const auto all = static_cast<std::uint64_t>(full.shape[0]), mine = static_cast<std::uint64_t>(shard.shape[0]);
    const shale_tensor parts = tools_.scratch(c.lane, full, full.dtype, all);
    if (fault_.skips("reduce", c.step)) return;
    tools_.all_to_all(c.lane, c.group, full, parts);
    for (std::uint32_t k = 0; k < c.ways; ++k)
      tools_.axpby(c.lane, 1, shale_range(&parts, k * all / c.ways, mine), 1, shard);
  }

  void replicate(const shale_exchange_call& c, const shale_tensor& shard) {
    fault_.at("replicate", c.step);
    if (!fault_.skips("replicate", c.step)) tools_.all_reduce(c.lane, SHALE_GROUP_WORLD, shard);
  }

  void step_end(std::uint64_t step) { fault_.at("step_end", step); }
  void begin(const shale_outer_call& c) { fault_.at("begin", c.step); }
  void apply(const shale_outer_call& c) { fault_.at("apply", c.step); }

 private:
  HookTools tools_{*this};
  Fault fault_;
};

const shale_exchange Hooks::exchange{
    sizeof(shale_exchange),
    0,
    [](void* s, const shale_exchange_call* c, const shale_tensor* shard, const shale_tensor* full) {
      return raw<Hooks>(s, [&](Hooks& h) { h.gather(*c, *shard, *full); });
    },
    [](void* s, const shale_exchange_call* c, const shale_tensor* full, const shale_tensor* shard) {
      return raw<Hooks>(s, [&](Hooks& h) { h.reduce(*c, *full, *shard); });
    },
    [](void* s, const shale_exchange_call* c, const shale_tensor* shard) {
      return raw<Hooks>(s, [&](Hooks& h) { h.replicate(*c, *shard); });
    },
    [](void* s, std::uint64_t step, std::uint32_t) { return raw<Hooks>(s, [&](Hooks& h) { h.step_end(step); }); }};

const shale_outer Hooks::outer{sizeof(shale_outer), 0,
                               [](void* s, const shale_outer_call* c, const shale_tensor*) {
                                 return raw<Hooks>(s, [&](Hooks& h) { h.begin(*c); });
                               },
                               [](void* s, const shale_outer_call* c, const shale_tensor*) {
                                 return raw<Hooks>(s, [&](Hooks& h) { h.apply(*c); });
                               }};

}  // namespace faulty

SHALE_PLUGIN(faulty::Hooks)

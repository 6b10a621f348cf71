// hybrid_shard: full_shard inside groups of ranks that are near each other, replicas across the groups.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class HybridShard : public Sharding {
 public:
  static constexpr Info info{.id = "hybrid_shard",
                             .version = "0.1.0",
                             .summary = "full_shard inside a node, replicas across nodes (HYBRID_SHARD, HSDP)"};
  static constexpr shale_option options[] = {
      integer("shard_size", "0", {"0", "65536", "ranks"},
              "consecutive ranks that split the model; must divide the world. 0 = the ranks of a node"),
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      choice("reduce_at", "micro_step", "micro_step|boundary",
             "when gradients are summed inside the shard group: after each micro-step, or once at the last one of a "
             "step; boundary sends less and keeps a whole gradient per rank"),
      choice("replica_at", "boundary", "micro_step|boundary",
             "when gradient shards are summed over the replicas: after each micro-step, or once a step"),
      integer("weight_slots", "0", {"0", "1024", "slots"},
              "buffers for gathered weights that layers take turns in; 0 = prefetch + 1, more spare gathers"),
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
  };
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    const auto weight_slots = config.count("weight_slots"), least = config.count("prefetch") + 1;
    if (weight_slots != 0 && weight_slots < least)
      throw bad_option("weight_slots", "must be 0 or at least prefetch + 1 = " + std::to_string(least) + " (got " +
                                           std::to_string(weight_slots) + ")");
    const auto size = shard_size(topology);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = to.blocks(size);
    u.replica_group = to.strides(size);
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.replica_at = config.text("replica_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      const bool keep = k == shale_last_unit(&model) || lends(*model.units[k]);
      u.reshard_group = keep ? SHALE_GROUP_SELF : u.shard_group;
      to.unit(k, u);
    }
    to.slots(weight_slots, config.count("grad_slots"));
  }

 private:
  // Another unit uses one of its parameters too (a tied head), so its weights must stay from the first use to the last.
  static bool lends(const shale_unit& unit) {
    for (std::uint32_t k = 0; k < unit.n_params; ++k)
      if (unit.params[k]->flags & SHALE_PARAM_TIED) return true;
    return false;
  }

  std::uint32_t shard_size(const shale_topology& topology) const {
    const auto asked = config.count("shard_size"), size = asked == 0 ? topology.node_size : asked;
    if (size == 0) throw bad_option("shard_size", "must be given: the nodes have different numbers of ranks");
    if (topology.world % size != 0)
      throw bad_option("shard_size", "must divide the number of ranks, " + std::to_string(topology.world) + " (got " +
                                         std::to_string(size) + ")");
    return size;
  }
};
SHALE_PLUGIN(HybridShard)

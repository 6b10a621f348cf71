// hybrid_shard_zero2: shard_grad_op inside groups of ranks that are near each other, replicas across the groups.
#include "shale/units.hpp"

using namespace shale::sdk;

class HybridShardZero2 : public Sharding {
 public:
  static constexpr Info info{.id = "hybrid_shard_zero2",
                             .version = "0.1.0",
                             .summary =
                                 "shard_grad_op inside a node, replicas across nodes; elsewhere FSDP1 "
                                 "_HYBRID_SHARD_ZERO2, FSDP2 reshard_after_forward=False on a 2-D mesh"};
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
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
      integer("min_shard_numel", "0", {"0", "1000000000000", "elements"},
              "units with fewer elements stay whole on every rank, so that they need no gather; 0 = none"),
      integer("layers_per_gather", "1", {"1", "8", "layers"},
              "layers that are gathered, computed and reduced together: fewer and larger messages, larger slots"),
  };
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    const auto size = shard_size(topology);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = to.blocks(size);
    u.replica_group = to.strides(size);
    u.reshard_group = SHALE_GROUP_SELF;
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.replica_at = config.text("replica_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    const auto least = static_cast<std::uint64_t>(config.integer("min_shard_numel"));
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      auto mine = u;
      mine.join = joins(model, k, config.count("layers_per_gather"));
      if (model.units[k]->numel < least) keep_whole(mine);
      to.unit(k, mine);
    }
    to.slots(0, config.count("grad_slots"));
  }

 private:
  std::uint32_t shard_size(const shale_topology& topology) const {
    const auto asked = config.count("shard_size"), size = asked == 0 ? topology.node_size : asked;
    if (size == 0) throw bad_option("shard_size", "must be given: the nodes have different numbers of ranks");
    if (topology.world % size != 0)
      throw bad_option("shard_size", "must divide the number of ranks, " + std::to_string(topology.world) + " (got " +
                                         std::to_string(size) + ")");
    return size;
  }
};
SHALE_PLUGIN(HybridShardZero2)

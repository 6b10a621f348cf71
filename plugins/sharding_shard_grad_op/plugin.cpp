// shard_grad_op: every unit split over all ranks between steps, gathered once a step and kept through its backward.
#include "shale/units.hpp"

using namespace shale::sdk;

class ShardGradOp : public Sharding {
 public:
  static constexpr Info info{.id = "shard_grad_op",
                             .version = "0.1.0",
                             .summary =
                                 "as full_shard, but weights are gathered once a step and kept; elsewhere FSDP1 "
                                 "SHARD_GRAD_OP, FSDP2 reshard_after_forward=False"};
  static constexpr shale_option options[] = {
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      choice("reduce_at", "micro_step", "micro_step|boundary",
             "when gradients are summed into the shards: after each micro-step, or once at the last one of a step; "
             "boundary sends less and keeps a whole gradient per rank"),
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
      integer("min_shard_numel", "0", {"0", "1000000000000", "elements"},
              "units with fewer elements stay whole on every rank, so that they need no gather; 0 = none"),
      integer("layers_per_gather", "1", {"1", "8", "layers"},
              "layers that are gathered, computed and reduced together: fewer and larger messages, larger slots"),
  };
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology&, ShardingPlan to) override {
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = SHALE_GROUP_WORLD;
    u.reshard_group = SHALE_GROUP_SELF;
    u.gather_at = SHALE_GATHER_ON_USE;
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
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
};
SHALE_PLUGIN(ShardGradOp)

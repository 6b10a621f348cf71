// zero2: whole weights on every rank, gradients and optimizer state split; weights gathered after the update.
#include "shale/units.hpp"

using namespace shale::sdk;

class Zero2 : public Sharding {
 public:
  static constexpr Info info{.id = "zero2",
                             .version = "0.1.0",
                             .summary =
                                 "optimizer state and gradients split over all ranks, whole weights; elsewhere "
                                 "DeepSpeed stage 2, FairScale ShardedDataParallel, Megatron optim_grads"};
  static constexpr shale_option options[] = {
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
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
    u.gather_at = SHALE_GATHER_AFTER_UPDATE;
    u.reduce_at = SHALE_AT_MICRO_STEP;
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
SHALE_PLUGIN(Zero2)

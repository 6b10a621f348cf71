// zero2: whole weights on every rank, gradients and optimizer state split; weights gathered after the update.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class Zero2 : public Sharding {
 public:
  static constexpr Info info{
      .id = "zero2",
      .version = "0.1.0",
      .summary = "optimizer state and gradients split over all ranks; whole weights (ZeRO stage 2)"};
  static constexpr shale_option options[] = {
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
  };
  using Sharding::Sharding;

  void plan(const shale_model&, const shale_topology&, ShardingPlan to) override {
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = SHALE_GROUP_WORLD;
    u.reshard_group = SHALE_GROUP_SELF;
    u.gather_at = SHALE_GATHER_AFTER_UPDATE;
    u.reduce_at = SHALE_AT_MICRO_STEP;
    u.align = config.count("align");
    to.units(u);
    to.slots(0, config.count("grad_slots"));
  }
};
SHALE_PLUGIN(Zero2)

// no_shard: every rank holds everything; gradients are summed over all ranks (plain data parallelism).
#include "shale/plugin.hpp"

using namespace shale::sdk;

class NoShard : public Sharding {
 public:
  static constexpr Info info{.id = "no_shard",
                             .version = "0.1.0",
                             .summary =
                                 "everything on every rank, gradients summed; elsewhere DDP, FSDP1 NO_SHARD, "
                                 "DeepSpeed stage 0, Megatron no_shard"};
  static constexpr shale_option options[] = {
      choice("reduce_at", "boundary", "micro_step|boundary",
             "when gradients are summed over the ranks: after each micro-step, or once at the last one of a step"),
  };
  using Sharding::Sharding;

  void plan(const shale_model&, const shale_topology&, ShardingPlan to) override {
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = u.reshard_group = SHALE_GROUP_SELF;
    u.replica_group = SHALE_GROUP_WORLD;
    u.replica_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    to.units(u);
  }
};
SHALE_PLUGIN(NoShard)

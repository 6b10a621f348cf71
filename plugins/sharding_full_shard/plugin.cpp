// full_shard: every unit split over all ranks, gathered for its forward and again for its backward (ZeRO stage 3).
#include "shale/plugin.hpp"

using namespace shale::sdk;

class FullShard : public Sharding {
 public:
  static constexpr Info info{
      .id = "full_shard",
      .version = "0.1.0",
      .summary = "weights, gradients and optimizer state split over all ranks (FULL_SHARD, ZeRO stage 3)"};
  static constexpr shale_option options[] = {
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      choice("reduce_at", "micro_step", "micro_step|boundary",
             "when gradients are summed into the shards: after each micro-step, or once at the last one of a step; "
             "boundary sends less and keeps a whole gradient per rank"),
      integer("weight_slots", "0", {"0", "1024", "slots"},
              "buffers for gathered weights that layers take turns in; 0 = prefetch + 1, more spare gathers"),
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
  };
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology&, ShardingPlan to) override {
    const auto weight_slots = config.count("weight_slots"), least = config.count("prefetch") + 1;
    if (weight_slots != 0 && weight_slots < least)
      throw bad_option("weight_slots", "must be 0 or at least prefetch + 1 = " + std::to_string(least) + " (got " +
                                           std::to_string(weight_slots) + ")");
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = SHALE_GROUP_WORLD;
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      const bool keep = k == shale_last_unit(&model) || lends(*model.units[k]);
      u.reshard_group = keep ? SHALE_GROUP_SELF : SHALE_GROUP_WORLD;
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
};
SHALE_PLUGIN(FullShard)

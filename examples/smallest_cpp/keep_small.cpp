// keep_small: split over all ranks like full_shard, but small units keep their gathered weights for the backward.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class KeepSmall : public Sharding {
 public:
  static constexpr Info info{.id = "keep_small", .version = "1.0.0", .summary = "full_shard that keeps small units"};
  static constexpr shale_option options[] = {
      integer("limit", "1000000", {"0", nullptr, "elements"}, "a unit of at most this many is gathered once a step"),
  };
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology&, ShardingPlan to) override {
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = SHALE_GROUP_WORLD;
    u.prefetch = 1;
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      const bool small = model.units[k]->numel <= static_cast<std::uint64_t>(config.integer("limit"));
      u.reshard_group = small || k == shale_last_unit(&model) ? SHALE_GROUP_SELF : SHALE_GROUP_WORLD;
      to.unit(k, u);
    }
  }
};
SHALE_PLUGIN(KeepSmall)

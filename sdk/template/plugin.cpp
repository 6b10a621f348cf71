// my_strategy: a starting point. Replace the id, the options and the body of plan.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class MyStrategy : public Sharding {
 public:
  static constexpr Info info{.id = "my_strategy",
                             .version = "0.1.0",
                             .summary = "one sentence that `shale plugin list` prints",
                             .vendor = "",
                             .license = "",
                             .url = ""};
  // key, default, {smallest, largest, unit}, help. The core checks the TOML against this before the plugin exists.
  static constexpr shale_option options[] = {
      integer("shard_size", "0", {"0", "65536", "ranks"}, "neighbouring ranks that split a unit; 0 = all of a node"),
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      flag("keep_last", "true", "whether the last unit keeps its weights for its backward"),
  };

  // Runs once, before anything is allocated. No files, devices, threads or collectives here.
  explicit MyStrategy(const Context& context) : Sharding(context) {}

  // Pure: the same answer for the same question, on every rank. The world may be another one than this run's.
  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    const std::uint32_t size = shard_size(topology);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = to.blocks(size);
    u.replica_group = to.strides(size);
    u.reshard_group = u.shard_group;
    u.replica_at = SHALE_AT_BOUNDARY;
    u.prefetch = config.count("prefetch");
    u.align = 64;
    to.units(u);
    if (!config.flag("keep_last")) return;
    u.reshard_group = SHALE_GROUP_SELF;
    to.unit(shale_last_unit(&model), u);
  }

 private:
  // A rule that only this plugin knows: the core puts file, line and column before the text.
  std::uint32_t shard_size(const shale_topology& topology) const {
    const std::uint32_t asked = config.count("shard_size"), size = asked != 0 ? asked : topology.node_size;
    if (size == 0) throw bad_option("shard_size", "must be given where nodes differ in size");
    if (topology.world % size != 0)
      throw bad_option("shard_size", "must divide the " + std::to_string(topology.world) + " ranks of the run (got " +
                                         std::to_string(size) + ")");
    return size;
  }
};
SHALE_PLUGIN(MyStrategy)

// mics: as hybrid_shard, but a shard group may span nodes, and its gathers then go in two levels: each piece crosses
// between nodes once, and spreads inside them.
#include <algorithm>
#include <map>
#include <vector>

#include "shale/hooks.hpp"
#include "shale/units.hpp"

using namespace shale::sdk;

class Mics : public Sharding, public Exchange {
 public:
  static constexpr Info info{.id = "mics",
                             .version = "0.1.0",
                             .summary =
                                 "full_shard inside groups that may span nodes, with gathers in two levels, "
                                 "replicas across groups; elsewhere DeepSpeed MiCS (mics_shard_size)"};
  static constexpr auto& needs = hook_services;
  static constexpr shale_option options[] = {
      integer("shard_size", "0", {"0", "65536", "ranks"},
              "consecutive ranks that split the model; must divide the world. 0 = the ranks of a node"),
      choice("hierarchical", "auto", "auto|true|false",
             "gather between nodes first and then inside them; auto = where a shard group spans nodes evenly"),
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      choice("reduce_at", "micro_step", "micro_step|boundary",
             "when gradients are summed inside the shard group: after each micro-step, or once at the last one of a "
             "step; boundary sends less and keeps a whole gradient per rank. Replicas are summed once a step"),
      integer("weight_slots", "0", {"0", "1024", "slots"},
              "buffers for gathered weights that layers take turns in; 0 = prefetch + 1, more spare gathers"),
      integer("grad_slots", "0", {"0", "1024", "slots"}, "buffers for whole gradients of a unit; 0 = 2"),
      integer("min_shard_numel", "0", {"0", "1000000000000", "elements"},
              "units with fewer elements stay whole on every rank, so that they need no gather; 0 = none"),
      integer("layers_per_gather", "1", {"1", "8", "layers"},
              "layers that are gathered, computed and reduced together; more than 1 rules gathers in two levels out"),
  };
  using Sharding::Sharding;

  static const shale_exchange exchange;
  // Joined layers are the core's own work, and so are plain gathers.
  bool offers(std::string_view id) const noexcept override {
    return id != SHALE_EXCHANGE || (config.text("hierarchical") != "false" && config.count("layers_per_gather") == 1);
  }

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    check_options();
    const auto size = shard_size(topology);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = u.reshard_group = to.blocks(size);
    u.replica_group = to.strides(size);
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.replica_at = SHALE_AT_BOUNDARY;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    make_levels(topology, size, to);
    const auto least = static_cast<std::uint64_t>(config.integer("min_shard_numel"));
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      auto mine = u;
      if (k == shale_last_unit(&model) || lends(*model.units[k])) mine.reshard_group = SHALE_GROUP_SELF;
      mine.join = joins(model, k, config.count("layers_per_gather"));
      mine.scratch_bytes = scratch_of(*model.units[k], size, u.align);
      if (model.units[k]->numel < least) keep_whole(mine);
      to.unit(k, mine);
    }
    to.slots(config.count("weight_slots"), config.count("grad_slots"));
  }

  void gather(const shale_exchange_call& call, const shale_tensor& shard, const shale_tensor& full) const {
    const auto chunk = call.flat->chunk, ranks = std::uint64_t{call.ways};
    const auto wire = call.flat->params[0]->gather_dtype;
    const auto all = wire == full.dtype ? full : tools_.scratch(call.lane, full, wire, ranks * chunk);
    if (ranks == 1) {
      put(call, shard, all);
    } else if (levels_.places == 1) {
      const auto mine = shale_range(&all, tools_.rank(call.group) * chunk, chunk);
      put(call, shard, mine);
      tools_.all_gather(call.lane, call.group, mine, all);
    } else {
      const auto column = tools_.scratch(call.lane, full, wire, levels_.nodes * chunk);  // of my place in each node
      const auto mine = shale_range(&column, tools_.rank(levels_.across) * chunk, chunk);
      put(call, shard, mine);
      tools_.all_gather(call.lane, levels_.across, mine, column);
      for (std::uint64_t node = 0; node < levels_.nodes; ++node)  // ranks of a node own neighbouring pieces
        tools_.all_gather(call.lane, levels_.inside, shale_range(&column, node * chunk, chunk),
                          shale_range(&all, node * levels_.places * chunk, levels_.places * chunk));
    }
    if (wire != full.dtype) tools_.copy(call.lane, full, all);
  }

 private:
  // How a shard group lies on the nodes; places 1: in one piece, gathered in one level.
  struct Levels {
    std::uint32_t nodes = 1, places = 1;
    std::uint32_t across = SHALE_GROUP_SELF, inside = SHALE_GROUP_SELF;  // equal place in their nodes; one node
  };

  void check_options() const {
    const auto weight_slots = config.count("weight_slots"), fewest = config.count("prefetch") + 1;
    if (weight_slots != 0 && weight_slots < fewest)
      throw bad_option("weight_slots", "must be 0 or at least prefetch + 1 = " + std::to_string(fewest) + " (got " +
                                           std::to_string(weight_slots) + ")");
    if (config.text("hierarchical") == "true" && config.count("layers_per_gather") > 1)
      throw bad_option("layers_per_gather", "must be 1 with hierarchical = \"true\"");
  }

  std::uint32_t shard_size(const shale_topology& topology) const {
    const auto asked = config.count("shard_size"), size = asked == 0 ? topology.node_size : asked;
    if (size == 0) throw bad_option("shard_size", "must be given: the nodes have different numbers of ranks");
    if (topology.world % size != 0)
      throw bad_option("shard_size", "must divide the number of ranks, " + std::to_string(topology.world) + " (got " +
                                         std::to_string(size) + ")");
    return size;
  }

  // Two levels need every shard group to consist of equally many ranks of equally many nodes, several of each.
  void make_levels(const shale_topology& topology, std::uint32_t size, ShardingPlan& to) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> ranks;  // of (shard group, node)
    std::vector<std::uint32_t> across(topology.world), inside(topology.world);
    for (std::uint32_t r = 0; r < topology.world; ++r) {
      const auto part = r / size, node = topology.node_of_rank[r];
      inside[r] = part * topology.n_nodes + node;
      across[r] = part * size + ranks[{part, node}]++;
    }
    const auto places = ranks.begin()->second, nodes = size / places;
    const bool even = std::all_of(ranks.begin(), ranks.end(), [&](auto& r) { return r.second == places; });
    const bool useful = even && places > 1 && nodes > 1;
    levels_ = {};
    if (config.text("hierarchical") == "true" && !useful)
      throw bad_option("hierarchical", "must not be \"true\" here: shard groups of " + std::to_string(size) +
                                           " do not consist of equally many ranks, at least 2, of 2 or more nodes");
    if (!useful || !offers(SHALE_EXCHANGE)) return;
    levels_ = {nodes, places, to.colors(across), to.colors(inside)};
  }

  // The pieces of the first level, and all of them where they travel in another type than they are computed with.
  std::uint64_t scratch_of(const shale_unit& unit, std::uint32_t size, std::uint64_t align) const {
    if (!offers(SHALE_EXCHANGE)) return 0;
    const auto chunk = ((unit.numel + size - 1) / size + align - 1) / align * align;
    std::uint64_t most = 0;
    for (std::uint32_t k = 0; k < unit.n_params; ++k) {
      const auto& p = *unit.params[k];
      const auto pieces = (levels_.places > 1 ? levels_.nodes : 0) + (p.gather_dtype == p.compute_dtype ? 0 : size);
      most = std::max(most, pieces * chunk * SHALE_DTYPE_BITS(p.gather_dtype) / 8);
    }
    return most == 0 ? 0 : most + 2 * 256;
  }

  // My shard in `piece` of chunk elements, zeros behind it; the cast to the wire happens here.
  void put(const shale_exchange_call& call, const shale_tensor& shard, const shale_tensor& piece) const {
    const auto chunk = call.flat->chunk, length = call.flat->length;
    const auto padding = shale_range(&piece, length, chunk - length);
    if (length > 0) tools_.copy(call.lane, shale_range(&piece, 0, length), shard);
    if (length < chunk) tools_.axpby(call.lane, 0, padding, 0, padding);
  }

  HookTools tools_{*this};
  Levels levels_;  // of the last plan
};

const shale_exchange Mics::exchange = exchange_table<Mics>();
SHALE_PLUGIN(Mics)

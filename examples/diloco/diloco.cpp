// diloco: islands of ranks train apart, each like full_shard over its own ranks. Every H steps all islands take one
// step of SGD with Nesterov momentum along the mean of what they moved since the last one (DiLoCo). With outer_lr 1
// and outer_momentum 0 that is the mean of the islands' weights (local SGD).
#include "shale/hooks.hpp"

using namespace shale::sdk;

class Diloco : public Sharding, public Outer {
 public:
  static constexpr Info info{.id = "diloco",
                             .version = "1.0.0",
                             .summary = "islands train apart and meet every H steps in an outer Nesterov step (DiLoCo)",
                             .caps = SHALE_CAP_CPU | SHALE_CAP_CUDA | SHALE_CAP_CHANGES_MATH};
  static constexpr auto& needs = hook_services;  // lane, collectives, math
  static constexpr shale_option options[] = {
      integer("every", "50", {"1", "1000000", "steps"}, "inner steps between outer steps"),
      number("outer_lr", "0.7", {"0", "10"}, "learning rate of the outer step; 1 takes the whole mean move"),
      number("outer_momentum", "0.9", {"0", "0.999"}, "momentum of the outer step"),
      flag("nesterov", "true", "Nesterov momentum, as in the paper; false = plain momentum"),
      integer("island_size", "0", {"0", "65536", "ranks"},
              "neighbouring ranks that train as one; 0 = all of a node, or one rank where there is one node"),
      flag("streaming", "false", "units meet one after the other, spread over the H steps, instead of all at once"),
      integer("delay", "0", {"0", "1000000", "steps"}, "steps that an exchange may take beside the training; < every"),
      number("mix", "0", {"0", "0.999"}, "share of its own weights that an island keeps when an outer step arrives"),
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
  };
  static const shale_outer outer;

  explicit Diloco(const Context& context)
      : Sharding(context),
        lr_(config.number("outer_lr")),
        momentum_(config.number("outer_momentum")),
        mix_(config.number("mix")),
        nesterov_(config.flag("nesterov")) {
    if (config.count("delay") >= config.count("every"))
      throw bad_option("delay", "must be less than every = " + std::to_string(config.count("every")) + " (got " +
                                    std::to_string(config.count("delay")) + ")");
  }

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    const std::uint32_t size = island_size(topology), every = config.count("every");
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = to.blocks(size);
    u.replica_group = peers_ = to.strides(size);
    u.replica_at = SHALE_NEVER;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    u.outer_every = every;
    u.outer_delay = config.count("delay");
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      const bool keep = k == shale_last_unit(&model) || lends(*model.units[k]);
      u.reshard_group = keep ? SHALE_GROUP_SELF : u.shard_group;
      u.outer_offset = config.flag("streaming") ? std::uint64_t{k} * every / model.n_units : 0;
      to.unit(k, u);
    }
    declare_states(model, to);
  }

  // What this island moved, summed over the islands; for plain averaging the weights themselves, so that the mean is
  // exact.
  void begin(const shale_outer_call& call, const shale_tensor& master) const {
    const shale_tensor delta = state(call, delta_);
    if (averages()) {
      tools_.copy(call.lane, delta, master);
    } else {
      tools_.copy(call.lane, delta, state(call, anchor_));
      tools_.axpby(call.lane, -1, master, 1, delta);
    }
    tools_.all_reduce(call.lane, peers_, delta);
  }

  void apply(const shale_outer_call& call, const shale_tensor& master) const {
    const double mean = 1.0 / tools_.size(peers_);
    const shale_tensor anchor = state(call, anchor_), delta = state(call, delta_);
    if (averages()) {
      tools_.axpby(call.lane, mean, delta, 0, anchor);
    } else {
      tools_.axpby(call.lane, mean, delta, 0, delta);
      if (momentum_ > 0) {
        const shale_tensor velocity = state(call, velocity_);
        tools_.axpby(call.lane, 1, delta, momentum_, velocity);  // v = beta v + delta
        tools_.axpby(call.lane, nesterov_ ? -lr_ * momentum_ : -lr_, velocity, 1, anchor);
      }
      if (momentum_ == 0 || nesterov_) tools_.axpby(call.lane, -lr_, delta, 1, anchor);
    }
    tools_.axpby(call.lane, 1 - mix_, anchor, mix_, master);
  }

 private:
  bool averages() const { return lr_ == 1 && momentum_ == 0; }

  std::uint32_t island_size(const shale_topology& topology) const {
    const std::uint32_t asked = config.count("island_size"), node = topology.n_nodes > 1 ? topology.node_size : 1;
    const std::uint32_t size = asked != 0 ? asked : node;
    if (size == 0) throw bad_option("island_size", "must be given where nodes differ in size");
    if (topology.world % size != 0)
      throw bad_option("island_size", "must divide the " + std::to_string(topology.world) + " ranks of the run (got " +
                                          std::to_string(size) + ")");
    return size;
  }

  // Another unit uses one of its parameters too, so its weights stay from the first use to the last.
  static bool lends(const shale_unit& unit) {
    for (std::uint32_t k = 0; k < unit.n_params; ++k)
      if (unit.params[k]->flags & SHALE_PARAM_TIED) return true;
    return false;
  }

  // One of each per shard, equal on all islands, in the widest type of the masters.
  void declare_states(const shale_model& model, ShardingPlan& to) {
    SHALE_VAR(shale_state, s);
    s.scope = SHALE_STATE_SHARD;
    s.unit = SHALE_ALL_UNITS;
    s.on_host = 1;
    s.dtype = SHALE_F32;
    for (std::uint32_t k = 0; k < model.n_units; ++k)
      for (std::uint32_t p = 0; p < model.units[k]->n_params; ++p)
        if (model.units[k]->params[p]->master_dtype == SHALE_F64) s.dtype = SHALE_F64;
    s.first = SHALE_STATE_MASTER;
    s.name = str("anchor");
    anchor_ = to.state(s);
    s.first = SHALE_STATE_FILL;
    s.name = str("delta");
    delta_ = to.state(s);
    if (momentum_ == 0) return;
    s.name = str("momentum");
    velocity_ = to.state(s);
  }

  shale_tensor state(const shale_outer_call& call, std::uint32_t id) const {
    return tools_.state(call.lane, id, call.flat);
  }

  HookTools tools_{*this};
  double lr_, momentum_, mix_;
  bool nesterov_;
  std::uint32_t peers_ = 0;  // ranks with the same shard, one of each island
  std::uint32_t anchor_ = 0, delta_ = 0, velocity_ = 0;
};

const shale_outer Diloco::outer = outer_table<Diloco>();
SHALE_PLUGIN(Diloco)

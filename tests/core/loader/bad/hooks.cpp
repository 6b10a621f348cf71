// Brings hooks that use every service, or go wrong in the way the option `mood` says.
#include <stdexcept>

#include "shale/hooks.hpp"

namespace {

using namespace shale::sdk;

class Hooks : public Sharding, public Exchange, public Outer {
 public:
  static constexpr Info info{.id = "hooks", .version = "1.0.0", .summary = "", .caps = SHALE_CAP_CPU};
  static constexpr shale_option options[] = {option(SHALE_OPT_TEXT, "mood", "good", "")};
  static constexpr auto& needs = hook_services;
  static const shale_exchange exchange;
  static const shale_outer outer;
  using Sharding::Sharding;

  bool mood(std::string_view is) const { return config.text("mood") == is; }
  void plan(const shale_model&, const shale_topology& t, ShardingPlan to) override {
    SHALE_VAR(shale_state, s);
    s.scope = SHALE_STATE_GLOBAL, s.unit = SHALE_ALL_UNITS, s.dtype = SHALE_F32, s.numel = 4,
    s.name = shale_text("calls");
    calls_ = to.state(s);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = u.reshard_group = t.world > 1 ? to.blocks(2) : SHALE_GROUP_SELF;
    u.replica_group = peers_ = t.world > 1 ? to.strides(2) : SHALE_GROUP_SELF;
    u.replica_at = SHALE_NEVER, u.outer_every = 10, u.outer_offset = 3, u.outer_delay = 2, u.scratch_bytes = 4096;
    if (mood("joined")) u.join = 1;
    if (mood("at micro-steps")) u.replica_at = SHALE_AT_MICRO_STEP;
    to.units(u);
  }

  // gather: full = the shards of all.
  void gather(const shale_exchange_call& c, const shale_tensor& shard, const shale_tensor& full) {
    go_wrong(c);
    const std::uint64_t chunk = static_cast<std::uint64_t>(full.shape[0]) / c.ways;
    const shale_tensor mine = shale_range(&full, tools.rank(c.group) * chunk, chunk);
    tools.axpby(c.lane, 0, mine, 0, mine);
    const shale_tensor owned = shale_range(&mine, 0, c.flat->length);
    tools.copy(c.lane, owned, shard);
    tools.all_gather(c.lane, c.group, mine, full);
  }
  // reduce: shard += the sum of my piece of full.
  void reduce(const shale_exchange_call& c, const shale_tensor& full, const shale_tensor& shard) {
    go_wrong(c);
    const shale_tensor sum = tools.scratch(c.lane, full, SHALE_F32, c.flat->chunk);
    tools.reduce_scatter(c.lane, c.group, full, sum);
    tools.axpby(c.lane, 1, shale_range(&sum, 0, c.flat->length), 1, shard);
  }
  void replicate(const shale_exchange_call& c, const shale_tensor& shard) {
    go_wrong(c);
    tools.all_reduce(c.lane, c.group, shard);
  }
  void step_end(std::uint64_t step, bool skipped) {
    if (mood("step_end")) throw Error(SHALE_INTERNAL, "", "ends badly" + std::string(skipped ? ", skipped" : ""));
    last_ = step;
  }

  // outer: the mean over the peers, and a count of the calls in the state.
  void begin(const shale_outer_call& c, const shale_tensor& master) {
    if (!master.read_only) throw Error(SHALE_INTERNAL, "", "may write");
    if (mood("sends master")) {
      const std::uint64_t n = c.flat->length * tools.size(peers_);
      tools.all_gather(c.lane, peers_, master, tools.scratch(c.lane, master, SHALE_F32, n));
    }
    tools.copy(c.lane, tools.scratch(c.lane, master, SHALE_F32, c.flat->length), master);
  }
  void apply(const shale_outer_call& c, const shale_tensor& master) {
    const shale_tensor calls = tools.state(c.lane, calls_);
    static_cast<float*>(calls.data)[0] += 1;
    tools.all_reduce(c.lane, peers_, master);
    tools.axpby(c.lane, 0, master, 1.0 / tools.size(peers_), master);
    if (mood("outer")) throw Error(SHALE_NOT_FINITE, "layers.0", "diverged");
  }

  void go_wrong(const shale_exchange_call& c) {
    if (mood("returns")) throw Error(SHALE_INTERNAL, "codes", "do not fit");
    if (mood("wrong state")) tools.state(c.lane, 17);
    if (mood("takes all")) tools.scratch(c.lane, 1 << 30);
    SHALE_VAR(shale_tensor, t);
    if (mood("ignores")) host->status_free(tools.math().copy(tools.math().ctx, c.lane, &t, &t));
    if (mood("hides")) {
      try {
        t.device_type = SHALE_DEVICE_CPU;
        tools.all_reduce(c.lane, c.group, tools.scratch(c.lane, t, SHALE_F32, 8));
      } catch (const Error&) {
        throw Error(SHALE_INTERNAL, "", "it did not work");
      }
    }
  }

  HookTools tools{*this};
  std::uint32_t calls_ = 0, peers_ = 0;
  std::uint64_t last_ = 0;
};

shale_status* throws(void*, const shale_exchange_call*, const shale_tensor*, const shale_tensor*) {
  throw std::runtime_error("thrown in a hook");
}

}  // namespace

const shale_exchange Hooks::exchange = exchange_table<Hooks>();
const shale_outer Hooks::outer = outer_table<Hooks>();

// The interface tables that only a plugin without plugin.hpp could answer.
static const void* find(void* self, const char* id) {
  auto* plugin = static_cast<Plugin*>(self);
  const std::string_view mood = plugin->config.text("mood"), name = id;
  static const shale_exchange throwing{sizeof throwing, 0, nullptr, throws, nullptr, nullptr};
  static const shale_exchange short_one{16, 0, nullptr, nullptr, nullptr, nullptr};
  static const shale_outer no_apply{sizeof no_apply, 0, nullptr, nullptr};
  if (mood == "no hooks" && name != SHALE_SHARDING) return nullptr;
  if (mood == "throws" && name == SHALE_EXCHANGE) return &throwing;
  if (mood == "short" && name == SHALE_EXCHANGE) return &short_one;
  if (mood == "no apply" && name == SHALE_OUTER) return &no_apply;
  return File<Hooks>::find(self, id);
}

extern "C" SHALE_EXPORT const shale_plugin* shale_plugin_entry_v1(const shale_host*) {
  static const shale_plugin table = [] {
    shale_plugin t = File<Hooks>::table;
    t.get_interface = &find;
    return t;
  }();
  return &table;
}

// A strategy with every hook, right when `fault` is none and wrong in one way for each other choice. Shards over blocks
// of ranks, keeps halves of a block, sums replicas with an error that is always zero; with `drift` replicas come
// together by an outer step.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "shale/plugin.hpp"

using namespace shale::sdk;

namespace {

#ifdef BAD_HOOKS_CHANGES_MATH
constexpr std::uint64_t kCaps = SHALE_CAP_CPU | SHALE_CAP_CHANGES_MATH;
#else
constexpr std::uint64_t kCaps = SHALE_CAP_CPU;
#endif
constexpr const char* kFaults =
    "none|never_alone|padding|far_padding|master|read_only|beyond|much_scratch|beside_scratch|cleared|kept|bits|"
    "average|overwrite|clamp|replica_bits|remember|absent|other_size|other_group|two_groups|small_recv|swallow|leak|"
    "crash|last_words|shared|random|begin_writes|apart|late|no_number";

std::atomic<int> ended = 0;  // instances destroyed so far: what a plugin must not look at

class BadHooks : public Sharding, public Exchange, public Outer {
 public:
  static constexpr Info info{.id = "bad_hooks", .version = "0.1.0", .summary = "for tests", .caps = kCaps};
  static constexpr shale_option options[] = {
      choice("fault", "none", kFaults, "what is wrong with it"),
      flag("drift", "false", "replicas are summed every third step only"),
      integer("delay", "0", {"0", "2", "steps"}, "steps from begin to apply"),
  };
  static const shale_exchange exchange;
  static const shale_outer outer;

  using Sharding::Sharding;
  ~BadHooks() override {
    ++ended;
    if (!is("last_words")) return;
    SHALE_VAR(shale_tensor, t);
    host->status_free(coll.all_reduce(coll.ctx, nullptr, SHALE_GROUP_WORLD, SHALE_SUM, &t));
  }

  void plan(const shale_model& m, const shale_topology& t, ShardingPlan to) override {
    const std::uint32_t block = t.world % 4 == 0 ? 4 : t.world % 2 == 0 ? 2 : 1;
    SHALE_VAR(shale_state, s);
    s.unit = SHALE_ALL_UNITS, s.dtype = SHALE_F32, s.scope = SHALE_STATE_SHARD_RANK, s.name = str("error");
    error = to.state(s);
    s.scope = SHALE_STATE_SHARD, s.name = str("delta"), delta = to.state(s);
    s.first = SHALE_STATE_MASTER, s.name = str("anchor"), anchor = to.state(s);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = to.blocks(block), u.reshard_group = block == 4 ? to.blocks(2) : u.shard_group;
    u.replica_group = peers = to.strides(block);
    half = to.blocks(t.world % 2 == 0 ? 2 : 1);
    u.replica_at = config.flag("drift") ? SHALE_NEVER : SHALE_AT_BOUNDARY;
    u.outer_every = is("never_alone") ? 0 : 3, u.outer_offset = 1, u.outer_delay = config.count("delay");
    if (u.outer_every == 0) u.outer_delay = 0;
    for (std::uint32_t k = 0; k < m.n_units; ++k) {
      u.scratch_bytes = 8 * (m.units[k]->numel + 2 * t.world) + 256;
      to.unit(k, u);
    }
  }

  bool is(std::string_view fault) const { return config.text("fault") == fault; }
  void copy(shale_lane* lane, const shale_tensor& to, const shale_tensor& from) const {
    pass(math.copy(math.ctx, lane, &to, &from));
  }
  // y = a x + b y
  void axpby(shale_lane* lane, double a, const shale_tensor& x, double b, const shale_tensor& y) const {
    pass(math.axpby(math.ctx, lane, a, &x, b, &y));
  }
  void clear(shale_lane* lane, const shale_tensor& t) const { axpby(lane, 0, t, 0, t); }
  void set(shale_lane* lane, const shale_tensor& t, float value) const {
    SHALE_VAR(shale_tensor, one);
    one.dtype = SHALE_F32, one.data = &value, one.device_type = SHALE_DEVICE_CPU;
    const shale_tensor number = shale_range(&one, 0, 1), first = shale_range(&t, 0, 1);
    if (t.shape[0] != 0) copy(lane, first, number);
  }
  void* scratch(shale_lane* lane, std::uint64_t bytes) const {
    void* p = nullptr;
    pass(lanes.scratch(lanes.ctx, lane, bytes, &p));
    return p;
  }
  shale_tensor state(shale_lane* lane, std::uint32_t id, const shale_flat* flat) const {
    SHALE_VAR(shale_tensor, t);
    pass(lanes.state(lanes.ctx, lane, id, flat, &t));
    return t;
  }
  void pass(shale_status* s) const {
    if (s != nullptr && is("crash")) std::abort();
    if (s != nullptr && is("leak")) throw Error(SHALE_INTERNAL, "", "a status was dropped");
    if (s != nullptr && is("swallow")) return host->status_free(s);
    ok(s);
  }

  void gather(const shale_exchange_call& c, const shale_tensor& shard, const shale_tensor& full);
  void reduce(const shale_exchange_call& c, const shale_tensor& full, const shale_tensor& shard);
  void replicate(const shale_exchange_call& c, const shale_tensor& shard);
  void begin(const shale_outer_call& c, const shale_tensor& master);
  void apply(const shale_outer_call& c, const shale_tensor& master);

 private:
  // For the fault "shared": the reduction sets a member, and a gather beside it changes it before it is used.
  void wait_for(int others) const {
    for (int k = 0; k < 10000 && inside < others; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void all_to_all(const shale_exchange_call& c, const shale_tensor& send, const shale_tensor& recv) const;

  const shale_lane_service& lanes = service<shale_lane_service>(SHALE_LANE_SERVICE);
  const shale_collectives& coll = service<shale_collectives>(SHALE_COLLECTIVES_SERVICE);
  const shale_math& math = service<shale_math>(SHALE_MATH_SERVICE);
  std::uint32_t error = 0, delta = 0, anchor = 0, peers = 0, half = 0;
  std::atomic<int> inside = 0;
  std::atomic<double> factor = 1;
};

void BadHooks::gather(const shale_exchange_call& c, const shale_tensor& shard, const shale_tensor& full) {
  if (is("shared")) wait_for(1), factor = 2.0, ++inside;
  const auto place = coll.rank(coll.ctx, c.group);
  const auto whole = static_cast<std::uint64_t>(full.shape[0]), have = static_cast<std::uint64_t>(shard.shape[0]);
  const std::uint64_t piece = is("kept") ? c.flat->chunk : whole / c.ways;
  const shale_tensor mine = shale_range(&full, place * piece, piece);
  const std::uint64_t taken = have < piece ? have : piece;
  const shale_tensor used = shale_range(&mine, 0, taken), padding = shale_range(&mine, taken, piece - taken);
  copy(c.lane, used, shale_range(&shard, 0, taken));
  if (is("cleared")) {
    shale_tensor zero = padding;
    zero.data = scratch(c.lane, piece * 8);
    copy(c.lane, padding, zero);
  } else if (!is("padding")) {
    clear(c.lane, padding);
  }
  if (is("much_scratch")) scratch(c.lane, 1u << 20);
  if (is("beside_scratch")) static_cast<char*>(scratch(c.lane, 13))[13] = 1;
  if (is("master") && have != 0) static_cast<char*>(shard.data)[0] ^= 1;
  if (is("read_only")) clear(c.lane, shard);
  if (is("absent") && place == 0) return;
  if (is("small_recv")) return pass(coll.all_gather(coll.ctx, c.lane, c.group, &mine, &mine));
  const std::uint32_t group = is("other_group") && place == 0 ? SHALE_GROUP_WORLD : c.group;
  if (group != c.group) pass(coll.all_reduce(coll.ctx, c.lane, group, SHALE_SUM, &used));
  if (is("two_groups") && c.ways == 4) {  // halves, then the whole; on the last rank the other way round
    const bool last = place + 1 == c.ways;
    const shale_tensor first = shale_range(&full, 0, 1);
    for (auto g : {last ? c.group : half, last ? half : c.group})
      pass(coll.all_reduce(coll.ctx, c.lane, g, SHALE_SUM, &first));
  }
  pass(coll.all_gather(coll.ctx, c.lane, c.group, &mine, &full));
  if (is("bits") && place == 1) axpby(c.lane, 1e-5, full, 1, full);
  if (is("random")) axpby(c.lane, 1e-6 * ended, full, 1, full);
  if (is("far_padding") && whole > c.flat->numel) set(c.lane, shale_range(&full, whole - 1, 1), 1);
  if (is("beyond")) static_cast<char*>(full.data)[whole * SHALE_DTYPE_BITS(full.dtype) / 8] = 1;
}

void BadHooks::all_to_all(const shale_exchange_call& c, const shale_tensor& send, const shale_tensor& recv) const {
  const bool less = is("other_size") && coll.rank(coll.ctx, c.group) == 0;
  const auto n = static_cast<std::uint64_t>(send.shape[0]) / (less ? 2 * c.ways : 1) * (less ? c.ways : 1);
  const shale_tensor from = shale_range(&send, 0, n), to = shale_range(&recv, 0, n);
  pass(coll.all_to_all(coll.ctx, c.lane, c.group, &from, &to));
}

void BadHooks::reduce(const shale_exchange_call& c, const shale_tensor& full, const shale_tensor& shard) {
  const std::uint64_t piece = c.flat->chunk, mine = c.flat->length;
  shale_tensor all = full;
  const std::uint64_t bytes = piece * c.ways * SHALE_DTYPE_BITS(full.dtype) / 8;
  all.data = scratch(c.lane, bytes);
  factor = is("average") ? 1.0 / c.ways : 1.0;
  if (is("shared")) ++inside, wait_for(2);
  all_to_all(c, full, all);
  if (is("overwrite")) clear(c.lane, shard);
  for (std::uint32_t k = 0; k < c.ways; ++k) axpby(c.lane, factor, shale_range(&all, k * piece, mine), 1, shard);
  if (!is("clamp") || shard.dtype != SHALE_F32) return;
  for (std::uint64_t k = 0; k < mine; ++k) {
    float& x = static_cast<float*>(shard.data)[k];
    if (!(x < std::numeric_limits<float>::max() && x > -std::numeric_limits<float>::max())) x = 0;
  }
}

void BadHooks::replicate(const shale_exchange_call& c, const shale_tensor& shard) {
  if (c.after_skip && !is("remember")) pass(lanes.reset(lanes.ctx, c.lane, error, c.flat));
  const shale_tensor e = state(c.lane, error, c.flat);
  axpby(c.lane, 1, e, 1, shard);
  axpby(c.lane, 1, shard, 0, e);  // x - x is 0, and NaN when x is not finite
  axpby(c.lane, -1, shard, 1, e);
  pass(coll.all_reduce(coll.ctx, c.lane, c.group, SHALE_SUM, &shard));
  if (is("replica_bits") && coll.rank(coll.ctx, c.group) == 1) axpby(c.lane, 1e-5, shard, 1, shard);
}

void BadHooks::begin(const shale_outer_call& c, const shale_tensor& master) {
  const shale_tensor d = state(c.lane, delta, c.flat), a = state(c.lane, anchor, c.flat);
  axpby(c.lane, 1, a, 0, d);
  axpby(c.lane, -1, master, 1, d);
  if (is("begin_writes") && master.shape[0] != 0) static_cast<char*>(master.data)[0] ^= 1;
  if (!is("late")) pass(coll.all_reduce(coll.ctx, c.lane, peers, SHALE_SUM, &d));
}

void BadHooks::apply(const shale_outer_call& c, const shale_tensor& master) {
  const shale_tensor d = state(c.lane, delta, c.flat), a = state(c.lane, anchor, c.flat);
  if (is("late")) pass(coll.all_reduce(coll.ctx, c.lane, peers, SHALE_SUM, &d));
  axpby(c.lane, -1.0 / coll.size(coll.ctx, peers), d, 1, a);
  if (!is("apart")) copy(c.lane, master, a);
  if (is("no_number")) set(c.lane, master, std::numeric_limits<float>::quiet_NaN());
}

shale_status* gather(void* self, const shale_exchange_call* c, const shale_tensor* shard, const shale_tensor* full) {
  return guard<BadHooks>(self, [&](BadHooks& b) { b.gather(*c, *shard, *full); });
}
shale_status* reduce(void* self, const shale_exchange_call* c, const shale_tensor* full, const shale_tensor* shard) {
  return guard<BadHooks>(self, [&](BadHooks& b) { b.reduce(*c, *full, *shard); });
}
shale_status* replicate(void* self, const shale_exchange_call* c, const shale_tensor* shard) {
  return guard<BadHooks>(self, [&](BadHooks& b) { b.replicate(*c, *shard); });
}
shale_status* begin(void* self, const shale_outer_call* c, const shale_tensor* master) {
  return guard<BadHooks>(self, [&](BadHooks& b) { b.begin(*c, *master); });
}
shale_status* apply(void* self, const shale_outer_call* c, const shale_tensor* master) {
  return guard<BadHooks>(self, [&](BadHooks& b) { b.apply(*c, *master); });
}
const shale_exchange BadHooks::exchange = {sizeof(shale_exchange), 0, ::gather, ::reduce, ::replicate, nullptr};
const shale_outer BadHooks::outer = {sizeof(shale_outer), 0, ::begin, ::apply};

}  // namespace

SHALE_PLUGIN(BadHooks)

// zeropp: full_shard with small integers on the wire (ZeRO++). Weights are gathered as int8 in blocks (qwZ), gradients
// are summed as int4 or int8 in two hops, inside a node and then across (qgZ); hpz keeps a copy of the gathered
// weights split inside the node for the backward.
#include <algorithm>
#include <type_traits>

#include "block_code.h"
#include "shale/hooks.hpp"

using namespace shale::sdk;
using zeropp::Blocks;
using zeropp::Coder;
using zeropp::Format;

namespace {

constexpr std::uint64_t kSpan = 1u << 16;  // numbers that one job codes

// Calls f(pointer of the type) for a tensor of floats.
template <class F>
void with_type(const shale_tensor& t, F f) {
  if (t.dtype == SHALE_F32) return f(static_cast<float*>(t.data));
  if (t.dtype == SHALE_BF16) return f(static_cast<zeropp::Bf16*>(t.data));
  if (t.dtype == SHALE_F16) return f(static_cast<zeropp::F16*>(t.data));
  if (t.dtype == SHALE_F64) return f(static_cast<double*>(t.data));
  throw Error(SHALE_UNSUPPORTED, "dtype", "zeropp codes float64, float32, bfloat16 and float16 only");
}

void refuse_cuda(std::uint32_t device_type) {
  if (device_type != SHALE_DEVICE_CPU)
    throw Error(SHALE_UNSUPPORTED, "cuda", "zeropp codes in CPU memory only; train on CPU or choose full_shard");
}

shale_tensor bytes_at(char* data, std::uint64_t n) {
  SHALE_VAR(shale_tensor, t);
  t.dtype = SHALE_U8;
  t.device_type = SHALE_DEVICE_CPU;
  t.data = data;
  return shale_range(&t, 0, n);
}

constexpr std::uint64_t up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

}  // namespace

class Zeropp : public Sharding, public Exchange {
 public:
  static constexpr Info info{.id = "zeropp",
                             .version = "1.0.0",
                             .summary = "full_shard with int8 weights and int4 gradients on the wire (ZeRO++)",
                             .caps = SHALE_CAP_CPU | SHALE_CAP_CHANGES_MATH};
  static constexpr auto& needs = hook_services;  // lane, collectives, math
  static constexpr shale_option options[] = {
      integer("group_size", "0", {"0", "65536", "ranks"},
              "neighbouring ranks that sum gradients first, and keep weights with hpz; 0 = all of a node"),
      flag("hpz", "false", "keep gathered weights split inside the group: the backward gather stays there, exact"),
      integer("weight_block", "256", {"2", "4096", "elements"}, "weights that share a scale; even"),
      integer("gradient_block", "64", {"2", "4096", "elements"}, "gradients that share a scale; even"),
      choice("gradient_bits", "4", "4|8", "width of a gradient on the wire"),
      choice("scales", "bf16", "bf16|fp32", "format of the scales on the wire"),
      integer("prefetch", "1", {"0", "8", "units"}, "gathers under way ahead of the unit that computes"),
      integer("align", "64", {"1", "65536", "elements"}, "shard boundaries are multiples of this"),
      choice("reduce_at", "micro_step", "micro_step|boundary", "when gradients are summed into the shards"),
  };
  static const shale_exchange exchange;

  explicit Zeropp(const Context& context) : Sharding(context) {
    weights_ = {even("weight_block"), 8, config.text("scales") == "bf16"};
    gradients_ = {even("gradient_block"), config.text("gradient_bits") == "4" ? 4u : 8u, weights_.bf16_scales};
  }

  void plan(const shale_model& model, const shale_topology& topology, ShardingPlan to) override {
    refuse_cuda(topology.device_type);
    places_ = group_size(topology);
    nodes_ = topology.world / places_;
    inside_ = to.blocks(places_);
    across_ = to.strides(places_);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = SHALE_GROUP_WORLD;
    u.reduce_at = config.text("reduce_at") == "boundary" ? SHALE_AT_BOUNDARY : SHALE_AT_MICRO_STEP;
    u.prefetch = config.count("prefetch");
    u.align = config.count("align");
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      const bool keep = k == shale_last_unit(&model) || lends(*model.units[k]);
      u.reshard_group = keep ? SHALE_GROUP_SELF : config.flag("hpz") ? inside_ : SHALE_GROUP_WORLD;
      u.scratch_bytes = scratch_bytes(model.units[k]->numel);
      to.unit(k, u);
    }
  }

  void gather(const shale_exchange_call& call, const shale_tensor& shard, const shale_tensor& full) const {
    refuse_cuda(full.device_type);
    // What hpz kept is already rounded, and coding it again would give the backward other weights than the forward.
    if (call.group != SHALE_GROUP_WORLD) return tools_.all_gather(call.lane, call.group, shard, full);
    with_type(full, [&](auto* slot) { with_type(shard, [&](const auto* mine) { gather_codes(call, mine, slot); }); });
  }

  void reduce(const shale_exchange_call& call, const shale_tensor& full, const shale_tensor& shard) const {
    refuse_cuda(full.device_type);
    with_type(full, [&](const auto* gradient) {
      if (shard.dtype == SHALE_F64) return sum_codes(call, gradient, static_cast<double*>(shard.data));
      if (shard.dtype == SHALE_F32) return sum_codes(call, gradient, static_cast<float*>(shard.data));
      throw Error(SHALE_UNSUPPORTED, "accumulate", "zeropp adds gradients up in float32 or float64 only");
    });
  }

 private:
  std::uint32_t even(const char* key) const {
    if (config.count(key) % 2 == 0) return config.count(key);
    throw bad_option(key, "must be even (got " + std::to_string(config.count(key)) + ")");
  }

  std::uint32_t group_size(const shale_topology& topology) const {
    const std::uint32_t asked = config.count("group_size"), size = asked != 0 ? asked : topology.node_size;
    if (size == 0) throw bad_option("group_size", "must be given where nodes differ in size");
    if (topology.world % size != 0)
      throw bad_option("group_size", "must divide the " + std::to_string(topology.world) + " ranks of the run (got " +
                                         std::to_string(size) + ")");
    return size;
  }

  // Another unit uses one of its parameters too, so its weights stay from the first use to the last.
  static bool lends(const shale_unit& unit) {
    for (std::uint32_t k = 0; k < unit.n_params; ++k)
      if (unit.params[k]->flags & SHALE_PARAM_TIED) return true;
    return false;
  }

  // For the longest flat a unit of numel elements can have.
  std::uint64_t scratch_bytes(std::uint64_t numel) const {
    const std::uint64_t ways = std::uint64_t{places_} * nodes_, align = config.count("align");
    const std::uint64_t chunk = up((numel + ways - 1) / ways, align);
    const std::uint64_t most =
        std::max(ways * weights_.bytes(chunk), 2 * codes_bytes(chunk) + nodes_ * chunk * sizeof(double));
    return up(most, 256);  // as the host rounds a block
  }
  std::uint64_t codes_bytes(std::uint64_t chunk) const {
    return up(std::uint64_t{places_} * nodes_ * gradients_.bytes(chunk), 64);
  }

  // Calls f(piece, blocks) for all blocks of `pieces` pieces, on the host's threads.
  template <class F>
  void each(const Coder& coder, std::uint32_t pieces, const F& f) const {
    struct Jobs {
      const F& f;
      std::uint64_t blocks, span, spans;
    } jobs{f, coder.blocks().last, std::max<std::uint64_t>(1, kSpan / coder.format.block), 0};
    jobs.spans = (jobs.blocks + jobs.span - 1) / jobs.span;
    const auto run = [](void* arg, std::uint32_t k) {
      const auto& j = *static_cast<const Jobs*>(arg);
      const std::uint64_t first = k % j.spans * j.span;
      j.f(static_cast<std::uint32_t>(k / j.spans), Blocks{first, std::min(first + j.span, j.blocks)});
    };
    const auto count = static_cast<std::uint32_t>(pieces * jobs.spans);
    const auto& host_run = service<shale_run>(SHALE_RUN_SERVICE);
    host_run.parallel(host_run.ctx, count, run, &jobs);
  }

  template <class From, class To>
  void gather_codes(const shale_exchange_call& call, const From* mine, To* slot) const {
    const std::uint64_t chunk = call.flat->chunk, length = call.flat->length;
    const Coder coder{weights_, chunk};
    const std::uint64_t one = coder.bytes();
    auto* all = static_cast<char*>(tools_.scratch(call.lane, one * call.ways));
    char* own = all + one * tools_.rank(call.group);
    each(coder, 1, [&](std::uint32_t, Blocks some) { coder.encode(some, mine, length, own); });
    const auto send = bytes_at(own, one), recv = bytes_at(all, one * call.ways);
    tools_.all_gather(call.lane, call.group, send, recv);
    each(coder, call.ways, [&](std::uint32_t piece, Blocks some) {
      To* to = slot + piece * chunk;
      coder.decode(some, all + piece * one, [&](std::uint64_t at, std::uint32_t n, const float* x) {
        for (std::uint32_t i = 0; i < n; ++i) zeropp::narrow(x[i], to[at + i]);
      });
    });
    // Padding shares blocks with numbers, whose scale may be NaN.
    std::fill(slot + call.flat->numel, slot + chunk * call.ways, To{});
  }

  // One all-to-all in a group of `ways`: `pieces` pieces to and from each rank, from `out` to `in`.
  struct Hop {
    std::uint32_t group, ways, me, pieces;
    char *out, *in;
  };

  // Sends to(rank, k) for all ranks of the group and k < pieces, and adds what the others sent into sums[k], in rank
  // order. My own part is not coded: it is in the sums already.
  template <class Piece, class Sum>
  void exchange_pieces(const shale_exchange_call& call, const Hop& hop, const Piece& to, Sum* sums) const {
    if (hop.ways == 1) return;
    const Coder coder{gradients_, call.flat->chunk};
    const std::uint64_t one = coder.bytes(), all = one * hop.ways * hop.pieces;
    each(coder, hop.ways * hop.pieces, [&](std::uint32_t k, Blocks some) {
      coder.encode(some, to(k / hop.pieces, k % hop.pieces), coder.n, hop.out + k * one);
    });
    const auto send = bytes_at(hop.out, all), recv = bytes_at(hop.in, all);
    tools_.all_to_all(call.lane, hop.group, send, recv);
    each(coder, hop.pieces, [&](std::uint32_t k, Blocks some) {
      for (std::uint32_t from = 0; from < hop.ways; ++from) {
        if (from == hop.me) continue;
        coder.decode(some, hop.in + (from * hop.pieces + k) * one,
                     [&](std::uint64_t at, std::uint32_t n, const float* x) {
                       for (std::uint32_t i = 0; i < n; ++i) sums[k * coder.n + at + i] += x[i];
                     });
      }
    });
  }

  // Rank node * places + place owns piece node * places + place. First hop: to each place of my node what its column
  // of nodes owns. Second hop: to each node the sum, over my node, of what the rank in my place there owns.
  template <class From, class Sum>
  void sum_codes(const shale_exchange_call& call, const From* gradient, Sum* shard) const {
    const std::uint64_t chunk = call.flat->chunk, codes = codes_bytes(chunk);
    const std::uint32_t place = tools_.rank(inside_);
    const std::uint32_t node = tools_.rank(across_);
    auto* out = static_cast<char*>(tools_.scratch(call.lane, 2 * codes + nodes_ * chunk * sizeof(Sum)));
    char* in = out + codes;
    auto* sums = reinterpret_cast<Sum*>(in + codes);
    const auto piece = [&](std::uint32_t p, std::uint32_t n) { return gradient + (n * places_ + p) * chunk; };
    const auto sum = [&](std::uint32_t n, std::uint32_t) { return sums + n * chunk; };
    for (std::uint32_t n = 0; n < nodes_; ++n)
      for (std::uint64_t i = 0; i < chunk; ++i) sums[n * chunk + i] = wide<Sum>(piece(place, n)[i]);
    exchange_pieces(call, {inside_, places_, place, nodes_, out, in}, piece, sums);
    exchange_pieces(call, {across_, nodes_, node, 1, out, in}, sum, sum(node, 0));
    for (std::uint64_t i = 0; i < call.flat->length; ++i) shard[i] += sums[node * chunk + i];
  }
  template <class Sum, class From>
  static Sum wide(From x) {
    if constexpr (std::is_same_v<From, double>)
      return static_cast<Sum>(x);
    else
      return zeropp::widen(x);
  }

  HookTools tools_{*this};
  Format weights_, gradients_;
  std::uint32_t places_ = 1, nodes_ = 1;  // ranks of a group, and groups
  std::uint32_t inside_ = 0, across_ = 0;
};

const shale_exchange Zeropp::exchange = exchange_table<Zeropp>();
SHALE_PLUGIN(Zeropp)

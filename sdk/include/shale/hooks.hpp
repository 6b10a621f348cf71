// shale plugin SDK 0.1 for C++20: hooks of sharding plugins (shale.sharding.exchange/1, shale.sharding.outer/1) without
// tables and statuses. Header only.
//
//   struct Mine : shale::sdk::Sharding, shale::sdk::Exchange {
//     static const shale_exchange exchange;
//     void gather(const shale_exchange_call&, const shale_tensor& shard, const shale_tensor& full);  // those you have
//     shale::sdk::HookTools tools{*this};
//   };
//   const shale_exchange Mine::exchange = shale::sdk::exchange_table<Mine>();
#pragma once

#include "shale/plugin.hpp"

namespace shale::sdk {

// The three services of hooks; a status becomes an Error, which ends the hook.
class HookTools {
 public:
  explicit HookTools(const Plugin& p)
      : plugin_(p),
        lane_(p.service<shale_lane_service>(SHALE_LANE_SERVICE)),
        ranks_(p.service<shale_collectives>(SHALE_COLLECTIVES_SERVICE)),
        math_(p.service<shale_math>(SHALE_MATH_SERVICE)) {}

  void* stream(shale_lane* l) const { return lane_.stream(lane_.ctx, l); }
  void* scratch(shale_lane* l, std::uint64_t bytes) const {
    void* out = nullptr;
    plugin_.ok(lane_.scratch(lane_.ctx, l, bytes, &out));
    return out;
  }
  // n elements of scratch where `like` lies.
  shale_tensor scratch(shale_lane* l, const shale_tensor& like, std::uint32_t dtype, std::uint64_t n) const {
    shale_tensor t = like;
    t.dtype = dtype, t.read_only = 0, t.data = scratch(l, n * SHALE_DTYPE_BITS(dtype) / 8);
    return shale_range(&t, 0, n);
  }
  shale_tensor state(shale_lane* l, std::uint32_t id, const shale_flat* flat = nullptr) const {
    SHALE_VAR(shale_tensor, t);
    plugin_.ok(lane_.state(lane_.ctx, l, id, flat, &t));
    return t;
  }
  void reset(shale_lane* l, std::uint32_t id, const shale_flat* flat = nullptr) const {
    plugin_.ok(lane_.reset(lane_.ctx, l, id, flat));
  }

  std::uint32_t size(std::uint32_t group) const { return ranks_.size(ranks_.ctx, group); }
  std::uint32_t rank(std::uint32_t group) const { return ranks_.rank(ranks_.ctx, group); }
  void all_gather(shale_lane* l, std::uint32_t group, const shale_tensor& send, const shale_tensor& recv) const {
    plugin_.ok(ranks_.all_gather(ranks_.ctx, l, group, &send, &recv));
  }
  void reduce_scatter(shale_lane* l, std::uint32_t group, const shale_tensor& send, const shale_tensor& recv) const {
    plugin_.ok(ranks_.reduce_scatter(ranks_.ctx, l, group, SHALE_SUM, &send, &recv));
  }
  void all_reduce(shale_lane* l, std::uint32_t group, const shale_tensor& inout, std::uint32_t op = SHALE_SUM) const {
    plugin_.ok(ranks_.all_reduce(ranks_.ctx, l, group, op, &inout));
  }
  void all_to_all(shale_lane* l, std::uint32_t group, const shale_tensor& send, const shale_tensor& recv) const {
    plugin_.ok(ranks_.all_to_all(ranks_.ctx, l, group, &send, &recv));
  }
  void broadcast(shale_lane* l, std::uint32_t group, std::uint32_t root, const shale_tensor& inout) const {
    plugin_.ok(ranks_.broadcast(ranks_.ctx, l, group, root, &inout));
  }

  void copy(shale_lane* l, const shale_tensor& to, const shale_tensor& from) const {
    plugin_.ok(math_.copy(math_.ctx, l, &to, &from));
  }
  // y = a x + b y
  void axpby(shale_lane* l, double a, const shale_tensor& x, double b, const shale_tensor& y) const {
    plugin_.ok(math_.axpby(math_.ctx, l, a, &x, b, &y));
  }
  struct Product {
    std::uint32_t transpose = 0;  // bit 0: a, bit 1: b
    double alpha = 1, beta = 0;
  };
  // c = alpha op(a) op(b) + beta c
  void matmul(shale_lane* l, Product p, const shale_tensor& a, const shale_tensor& b, const shale_tensor& c) const {
    plugin_.ok(math_.matmul(math_.ctx, l, p.transpose, p.alpha, &a, &b, p.beta, &c));
  }
  const shale_math& math() const { return math_; }
  void orthogonalise(shale_lane* l, const shale_tensor& a) const { plugin_.ok(math_.orthogonalise(math_.ctx, l, &a)); }

 private:
  const Plugin& plugin_;
  const shale_lane_service& lane_;
  const shale_collectives& ranks_;
  const shale_math& math_;
};

// What a plugin with HookTools lists: static constexpr auto& needs = shale::sdk::hook_services;
inline constexpr const char* hook_services[] = {SHALE_LANE_SERVICE, SHALE_COLLECTIVES_SERVICE, SHALE_MATH_SERVICE,
                                                nullptr};

// Tables from those of the public members gather, reduce, replicate, step_end that P has; NULL = the core's own.
template <class P>
constexpr shale_exchange exchange_table() {
  shale_exchange t{sizeof(shale_exchange), 0, nullptr, nullptr, nullptr, nullptr};
  if constexpr (requires { &P::gather; })
    t.gather = [](void* s, const shale_exchange_call* c, const shale_tensor* shard, const shale_tensor* full) {
      return guard<P>(s, [&](P& p) { p.gather(*c, *shard, *full); });
    };
  if constexpr (requires { &P::reduce; })
    t.reduce = [](void* s, const shale_exchange_call* c, const shale_tensor* full, const shale_tensor* shard) {
      return guard<P>(s, [&](P& p) { p.reduce(*c, *full, *shard); });
    };
  if constexpr (requires { &P::replicate; })
    t.replicate = [](void* s, const shale_exchange_call* c, const shale_tensor* shard) {
      return guard<P>(s, [&](P& p) { p.replicate(*c, *shard); });
    };
  if constexpr (requires { &P::step_end; })
    t.step_end = [](void* s, std::uint64_t step, std::uint32_t skipped) {
      return guard<P>(s, [&](P& p) { p.step_end(step, skipped != 0); });
    };
  return t;
}

// From the public members begin (if it has one) and apply.
template <class P>
constexpr shale_outer outer_table() {
  shale_outer t{sizeof(shale_outer), 0, nullptr, nullptr};
  if constexpr (requires { &P::begin; })
    t.begin = [](void* s, const shale_outer_call* c, const shale_tensor* master) {
      return guard<P>(s, [&](P& p) { p.begin(*c, *master); });
    };
  t.apply = [](void* s, const shale_outer_call* c, const shale_tensor* master) {
    return guard<P>(s, [&](P& p) { p.apply(*c, *master); });
  };
  return t;
}

}  // namespace shale::sdk

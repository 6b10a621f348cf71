#include "core/loader/hook_services.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "core/loader/tensor_view.h"
#include "fake_lane.h"
#include "support.h"

namespace shale {
namespace {

std::string text(shale_status* s) {
  const Status owned(s);
  return s == nullptr ? "" : str(s->where, ": ", s->text);
}

// Four ranks, group 2: two halves.
ShardPlan plan_of_four() {
  ShardPlan plan;
  plan.groups = {self_partition(4), world_partition(4), {0, 0, 1, 1}};
  StateSpec all{"q", StateScope::global, kAllUnits, at::kFloat, StateFirst::fill, 0, false, 8};
  StateSpec shard{"error", StateScope::shard_rank, kAllUnits, at::kFloat, StateFirst::fill, 0, false, 0};
  StateSpec one{"anchor", StateScope::shard, 1, at::kFloat, StateFirst::master, 0, false, 0};
  plan.states = {all, shard, one};
  return plan;
}

// A rank of the plan above, with its tables.
struct Rank {
  explicit Rank(int rank) : services(rank), model(test::small_model(), nullptr), lent(services, lane, at::kCPU) {
    services.use(plan_of_four(), model);
    lanes = static_cast<const shale_lane_service*>(services.find(SHALE_LANE_SERVICE));
    collectives = static_cast<const shale_collectives*>(services.find(SHALE_COLLECTIVES_SERVICE));
  }
  Rank(int rank, Group& world) : Rank(rank) { lane.groups[kWorldGroup] = &world; }
  static shale_tensor c(const at::Tensor& t) { return tensor_to_c(t, Use::write); }

  using Move = decltype(shale_collectives::all_gather);
  std::string move(Move f, const at::Tensor& send, const at::Tensor& recv, std::uint32_t group = kWorldGroup) {
    const shale_tensor s = c(send), r = c(recv);
    return text(f(collectives->ctx, lent.handle(), group, &s, &r));
  }
  std::string scatter(std::uint32_t op, const at::Tensor& send, const at::Tensor& recv,
                      std::uint32_t group = kWorldGroup) {
    const shale_tensor s = c(send), r = c(recv);
    return text(collectives->reduce_scatter(collectives->ctx, lent.handle(), group, op, &s, &r));
  }
  std::string reduce(std::uint32_t op, const at::Tensor& t, std::uint32_t group = kWorldGroup) {
    const shale_tensor i = c(t);
    return text(collectives->all_reduce(collectives->ctx, lent.handle(), group, op, &i));
  }
  std::string broadcast(std::uint32_t root, const at::Tensor& t, std::uint32_t group = kWorldGroup) {
    const shale_tensor i = c(t);
    return text(collectives->broadcast(collectives->ctx, lent.handle(), group, root, &i));
  }

  HookServices services;
  ModelView model;
  test::FakeLane lane;
  HookServices::Lent lent;
  const shale_lane_service* lanes;
  const shale_collectives* collectives;
};

TEST(HookServices, TheThreeTables) {
  HookServices services(0);
  EXPECT_NE(services.find(SHALE_LANE_SERVICE), nullptr);
  EXPECT_NE(services.find(SHALE_COLLECTIVES_SERVICE), nullptr);
  EXPECT_NE(services.find(SHALE_MATH_SERVICE), nullptr);
  EXPECT_EQ(services.find(SHALE_RUN_SERVICE), nullptr);
}

TEST(Collectives, SizesAndPlaces) {
  for (int rank = 0; rank < 4; ++rank) {
    Rank r(rank);
    const auto* c = r.collectives;
    EXPECT_EQ(c->size(c->ctx, kSelfGroup), 1u);
    EXPECT_EQ(c->rank(c->ctx, kSelfGroup), 0u);
    EXPECT_EQ(c->size(c->ctx, kWorldGroup), 4u);
    EXPECT_EQ(c->rank(c->ctx, kWorldGroup), static_cast<std::uint32_t>(rank));
    EXPECT_EQ(c->size(c->ctx, 2), 2u);
    EXPECT_EQ(c->rank(c->ctx, 2), static_cast<std::uint32_t>(rank % 2));
    EXPECT_EQ(c->size(c->ctx, 3), 0u);  // no such group
  }
}

at::Tensor numbers(std::int64_t n, at::ScalarType type, int rank) { return (at::arange(n) + 10 * rank).to(type); }

TEST(Collectives, BytesOfEveryTypeTravel) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kFloat8_e4m3fn, at::kLong, at::kInt,
                          at::kShort, at::kChar, at::kByte, at::kBool}) {
    SCOPED_TRACE(c10::toString(type));
    test::on_threads(4, [&](int rank, test::MemoryGroup& world) {
      Rank r(rank, world);
      const at::Tensor mine = numbers(3, type, rank), all = at::zeros({12}, type), swapped = at::zeros({12}, type);
      EXPECT_EQ(r.move(r.collectives->all_gather, mine, all), "");
      for (int k = 0; k < 4; ++k)
        EXPECT_TRUE(at::equal(byte_view(all.narrow(0, 3 * k, 3)), byte_view(numbers(3, type, k))));
      EXPECT_EQ(r.move(r.collectives->all_to_all, all, swapped), "");
      for (int k = 0; k < 4; ++k) EXPECT_TRUE(at::equal(byte_view(swapped.narrow(0, 3 * k, 3)), byte_view(mine)));
      EXPECT_EQ(r.broadcast(2, mine), "");
      EXPECT_TRUE(at::equal(byte_view(mine), byte_view(numbers(3, type, 2))));
    });
  }
}

TEST(Collectives, AllGatherFromItsOwnPlace) {
  test::on_threads(4, [](int rank, test::MemoryGroup& world) {
    Rank r(rank, world);
    const at::Tensor all = at::zeros({8});
    all.narrow(0, 2 * rank, 2).fill_(rank + 1);
    EXPECT_EQ(r.move(r.collectives->all_gather, all.narrow(0, 2 * rank, 2), all), "");
    for (int k = 0; k < 8; ++k) EXPECT_EQ(all[k].item<double>(), k / 2 + 1);
  });
}

TEST(Collectives, Reductions) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort})
    for (const std::uint32_t op : {SHALE_SUM, SHALE_MAX, SHALE_MIN}) {
      SCOPED_TRACE(str(c10::toString(type), " ", op));
      test::on_threads(4, [&](int rank, test::MemoryGroup& world) {
        Rank r(rank, world);
        const at::Tensor all = numbers(8, type, rank), mine = at::zeros({2}, type);
        EXPECT_EQ(r.scatter(op, all, mine), "");
        EXPECT_EQ(r.reduce(op, all), "");
        for (int k = 0; k < 8; ++k) {  // k + 0, k + 10, k + 20, k + 30
          const double wanted = op == SHALE_SUM ? 4 * k + 60 : op == SHALE_MAX ? k + 30 : k;
          EXPECT_EQ(all[k].to(at::kDouble).item<double>(), wanted);
          if (k / 2 == rank) {
            EXPECT_EQ(mine[k % 2].to(at::kDouble).item<double>(), wanted);
          }
        }
      });
    }
}

TEST(Collectives, ReduceScatterIntoAWiderType) {
  test::on_threads(4, [](int rank, test::MemoryGroup& world) {
    Rank r(rank, world);
    const at::Tensor all = at::full({4}, 1.0 + rank / 128.0, at::kBFloat16), mine = at::zeros({1});
    EXPECT_EQ(r.scatter(SHALE_SUM, all, mine), "");
    EXPECT_EQ(mine.item<double>(), 4 + 6 / 128.0);  // not a bfloat16
    EXPECT_EQ(r.lane.taken, 8);
    EXPECT_EQ(r.scatter(SHALE_SUM, all, mine), "");
    EXPECT_EQ(r.lane.taken, 8);  // its staging is taken once
  });
}

TEST(Collectives, Alone) {
  Rank r(1);
  const at::Tensor send = at::arange(4), recv = at::zeros({4}, at::kLong);
  for (const auto f : {r.collectives->all_gather, r.collectives->all_to_all}) {
    recv.zero_();
    EXPECT_EQ(r.move(f, send, recv, kSelfGroup), "");
    EXPECT_TRUE(at::equal(recv, send));
  }
  EXPECT_EQ(r.move(r.collectives->all_gather, send, send, kSelfGroup), "");
  const at::Tensor sum = at::zeros({4}), x = at::full({4}, 3.0);
  EXPECT_EQ(r.scatter(SHALE_SUM, x, sum, kSelfGroup), "");
  EXPECT_EQ(r.reduce(SHALE_SUM, sum, kSelfGroup), "");
  EXPECT_EQ(r.broadcast(0, sum, kSelfGroup), "");
  EXPECT_TRUE(at::equal(sum, x));
}

TEST(Collectives, WrongArgumentsAreRefusedByName) {
  Rank r(0);
  test::Meeting meeting(4);
  test::LostGroup world(meeting, 0);  // nothing may reach it
  r.lane.groups[kWorldGroup] = &world;
  const at::Tensor three = at::zeros({3}), eight = at::zeros({8}), two = at::zeros({2});
  const auto* c = r.collectives;
  EXPECT_EQ(r.move(c->all_gather, two, eight, 9), "group: is 9, an id that the plan did not give");
  EXPECT_EQ(r.move(c->all_gather, three, eight), "recv: has 8 elements, must have 4 x 3");
  EXPECT_EQ(r.move(c->all_gather, two.to(at::kInt), eight), "send: is of Int, recv of Float");
  EXPECT_EQ(r.move(c->all_gather, eight.narrow(0, 1, 2), eight), "send: overlaps recv and is not its own place in it");
  EXPECT_EQ(r.move(c->all_to_all, three, three.clone()),
            "send: has 3 elements, recv 3; both need the same number, a multiple of 4");
  EXPECT_EQ(r.move(c->all_to_all, eight, eight), "recv: overlaps send");
  EXPECT_EQ(r.scatter(3, eight, two), "op: is 3");
  EXPECT_EQ(r.scatter(SHALE_SUM, eight, three), "send: has 8 elements, must have 4 x 3");
  EXPECT_EQ(r.scatter(SHALE_MAX, eight.to(at::kBFloat16), two), "send: is of BFloat16, recv of Float");
  EXPECT_EQ(r.scatter(SHALE_SUM, eight, eight.narrow(0, 0, 2)), "recv: overlaps send");
  EXPECT_EQ(r.reduce(SHALE_SUM, eight.to(at::kByte)),
            "inout: is of Byte; reductions take floats and integers of 16 bits and more");
  EXPECT_EQ(r.broadcast(4, eight), "root: is 4, the group has 4 ranks");
  shale_tensor t = Rank::c(eight);
  t.read_only = 1;
  EXPECT_EQ(text(c->all_reduce(c->ctx, r.lent.handle(), 1, SHALE_SUM, &t)), "inout: is read-only");
  t = Rank::c(eight), t.strides[0] = 2;
  EXPECT_EQ(text(c->all_reduce(c->ctx, r.lent.handle(), 1, SHALE_SUM, &t)),
            "inout: has stride 2 in dimension 0; it must be row-major, so 1");
  EXPECT_EQ(text(c->all_reduce(c->ctx, nullptr, 1, SHALE_SUM, &t)), "lane: is not lent to this hook");
  EXPECT_EQ(r.move(c->all_gather, at::zeros({0}), at::zeros({0})), "");  // nothing to send
}

TEST(Collectives, AnEndedPeerIsAnErrorThatStaysSecondary) {
  Rank r(0);
  test::Meeting meeting(4);
  test::LostGroup world(meeting, 0);
  r.lane.groups[kWorldGroup] = &world;
  const shale_tensor t = Rank::c(at::zeros({8}));
  const Status s(r.collectives->all_reduce(r.collectives->ctx, r.lent.handle(), kWorldGroup, SHALE_SUM, &t));
  ASSERT_TRUE(s && s->cause);
  EXPECT_EQ(s->code, SHALE_TIMED_OUT);
  EXPECT_TRUE(s->cause->secondary());
  const Status kept = r.lent.take_failure();
  ASSERT_TRUE(kept && kept->cause);
  EXPECT_TRUE(kept->cause->secondary());
}

TEST(LaneService, Scratch) {
  Rank r(0);
  r.lane.planned = 100;
  void* p = nullptr;
  EXPECT_EQ(text(r.lanes->scratch(r.lanes->ctx, r.lent.handle(), 60, &p)), "");
  EXPECT_NE(p, nullptr);
  const Status s(r.lanes->scratch(r.lanes->ctx, r.lent.handle(), 41, &p));
  ASSERT_TRUE(s);
  EXPECT_EQ(s->code, SHALE_OUT_OF_MEMORY);
  EXPECT_EQ(s->cause->code(), Code::config);
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(text(r.lanes->scratch(r.lanes->ctx, r.lent.handle(), ~std::uint64_t{0}, &p)),
            "scratch: 18446744073709551615 bytes");
  EXPECT_EQ(text(r.lanes->scratch(r.lanes->ctx, r.lent.handle(), 1, nullptr)), "out: is NULL");
  EXPECT_EQ(text(r.lanes->scratch(r.lanes->ctx, nullptr, 1, &p)), "lane: is not lent to this hook");
  EXPECT_EQ(r.lanes->stream(r.lanes->ctx, r.lent.handle()), nullptr);
  EXPECT_EQ(r.lanes->stream(r.lanes->ctx, nullptr), nullptr);
}

struct States : testing::Test {
  States() : rank(2) {
    out.struct_size = sizeof out;
    flat = {1, 0, false, {0}, {0}, 16}, frozen = {1, 1, true, {1}, {0}, 4}, other = {2, 0, false, {0}, {0}, 16};
    rank.lane.states[{0, nullptr}] = at::full({8}, 1.0);
    rank.lane.states[{1, &flat}] = at::full({8}, 2.0);
    rank.lane.states[{2, &flat}] = at::full({8}, 3.0);
  }
  std::string state(std::uint32_t index, const shale_flat* f) {
    return text(rank.lanes->state(rank.lanes->ctx, rank.lent.handle(), index, f, &out));
  }
  const shale_flat* view(const FlatLayout& f) { return rank.services.flats().view(f, range); }
  double first() const { return *static_cast<const float*>(out.data); }

  Rank rank;
  FlatLayout flat, frozen, other;
  ShardRange range{8, 8, 8};
  shale_tensor out{};
};

TEST_F(States, AreFoundByIndexAndFlat) {
  EXPECT_EQ(state(0, nullptr), "");
  EXPECT_EQ(first(), 1);
  EXPECT_EQ(out.dtype, SHALE_F32);
  EXPECT_EQ(out.shape[0], 8);
  EXPECT_EQ(out.read_only, 0u);
  EXPECT_EQ(state(1, view(flat)), "");
  EXPECT_EQ(first(), 2);
  EXPECT_EQ(state(2, view(flat)), "");
  EXPECT_EQ(first(), 3);
  EXPECT_EQ(text(rank.lanes->reset(rank.lanes->ctx, rank.lent.handle(), 1, view(flat))), "");
  EXPECT_EQ(rank.lane.states[std::pair(1, &flat)].sum().item<double>(), 0);
}

TEST_F(States, WrongOnesAreRefusedByName) {
  const shale_flat unknown{};
  EXPECT_EQ(state(3, nullptr), "state: is 3, the plan has 3");
  EXPECT_EQ(state(0, view(flat)), "flat: must be NULL: state q is one tensor in all");
  EXPECT_EQ(state(1, nullptr), "flat: is NULL: state error is one tensor per flat");
  EXPECT_EQ(state(1, &unknown), "flat: is not one that a hook of this run was handed");
  EXPECT_EQ(state(1, view(frozen)), "flat: is frozen: state error has nothing for it");
  EXPECT_EQ(state(2, view(other)), "flat: is of unit 2, state anchor of unit 1");
  EXPECT_EQ(text(rank.lanes->reset(rank.lanes->ctx, rank.lent.handle(), 7, nullptr)), "state: is 7, the plan has 3");
  out.struct_size = 0;
  EXPECT_EQ(state(0, nullptr), "out: is NULL or has no struct_size: make it with SHALE_VAR");
}

TEST(FlatViews, OneAddressPerFlatAndWhatItHolds) {
  const ModelView model(test::small_model(), nullptr), again(test::small_model(), nullptr);
  FlatViews views;
  views.use(&model);
  const FlatLayout flat{2, 1, false, {1, 0}, {0, 4}, 20};
  const ShardRange range{8, 16, 4};
  const shale_flat* c = views.view(flat, range);
  EXPECT_EQ(c->struct_size, sizeof(shale_flat));
  EXPECT_EQ(c->unit, 2u);
  EXPECT_EQ(c->index, 1u);
  EXPECT_EQ(c->numel, 20u);
  EXPECT_EQ(c->chunk, 8u);
  EXPECT_EQ(c->begin, 16u);
  EXPECT_EQ(c->length, 4u);
  ASSERT_EQ(c->n_params, 2u);
  EXPECT_EQ(to_text(c->params[0]->name), "layers.1.norm");
  EXPECT_EQ(c->offsets[1], 4u);
  EXPECT_EQ(c->params[1], model.c()->units[2]->params[0]);
  EXPECT_EQ(views.layout(c), &flat);
  EXPECT_EQ(views.name(flat), "layers.1 (flat 1)");
  views.use(&again);  // another plan
  EXPECT_EQ(views.layout(c), nullptr);
  EXPECT_EQ(views.view(flat, range), c);
  EXPECT_EQ(c->params[1], again.c()->units[2]->params[0]);
}

}  // namespace
}  // namespace shale

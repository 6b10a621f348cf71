#include "core/sharding/exchange.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fake_lane.h"
#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::option;
using test::small_model;
using test::topology_of;
using test::with_sharding;

// One rank of four, with the plugin in the given mood and a plan.
struct Rank {
  explicit Rank(const std::string& mood, int rank = 0, int world = 4)
      : run(run_of(rank, world)), plugins(load_plugins(with_sharding("hooks", {option("mood", mood)}), {}, log, &run)) {
    plugins->precision().plan(small_model(), topology_of(world, 2));
    plan = plugins->sharding().plan(small_model(), topology_of(world, 2));
    group = plan.units[1].shard_group, peers = plan.units[1].replica_group;
    range = shard_range(flat.numel, 2, rank % 2, 1);
  }
  static RunContext run_of(int rank, int world) {
    RunContext r;
    r.rank = rank, r.world = world;
    return r;
  }
  ExchangeCall call() {
    ExchangeCall c;
    c.group = group, c.ways = 2, c.step = 3, c.flat = &flat, c.range = &range, c.lane = &lane;
    return c;
  }
  Exchange& exchange() { return *plugins->sharding().exchange(); }

  Log log{1};
  RunContext run;
  std::unique_ptr<Plugins> plugins;
  ShardPlan plan;
  int group = 0, peers = 0;
  FlatLayout flat{1, 0, false, {0}, {0}, 15};
  ShardRange range;
  test::FakeLane lane;
};

TEST(Hooks, ThePlanSaysWhichThereAre) {
  const Rank good("good");
  EXPECT_TRUE(good.plan.own.gather && good.plan.own.reduce && good.plan.own.replicate && good.plan.own.step_end);
  EXPECT_TRUE(good.plan.own.outer);
  EXPECT_EQ(good.plan.units[1].outer_every, 10);
  EXPECT_EQ(good.plan.units[1].outer_offset, 3);
  EXPECT_EQ(good.plan.units[1].outer_delay, 2);
  EXPECT_EQ(good.plan.units[1].scratch_bytes, 4096);
  EXPECT_EQ(good.plan.units[1].replica_at, SyncAt::never);
  ASSERT_EQ(good.plan.states.size(), 1u);
  EXPECT_EQ(good.plan.states[0].name, "calls");
  EXPECT_EQ(good.plan.states[0].numel, 4);
  Rank throwing("throws");  // its table has reduce alone
  EXPECT_TRUE(throwing.plan.own.reduce);
  EXPECT_FALSE(throwing.plan.own.gather || throwing.plan.own.replicate || throwing.plan.own.step_end);
}

TEST(Hooks, TablesThatCannotBeUsed) {
  expect_error(Code::config,
               {"[sharding] hooks", "its table of shale.sharding.exchange/1 has 16 bytes, ABI 0.1 has 40"},
               [] { Rank("short"); });
  expect_error(Code::config, {"[sharding] hooks", "shale.sharding.outer/1 has no apply"}, [] { Rank("no apply"); });
  expect_error(Code::config,
               {"[sharding] hooks", "NEVER needs shale.sharding.outer/1, which the plugin does not bring"},
               [] { Rank("no hooks"); });
  expect_error(Code::config, {"[sharding] hooks", "unit embedding is joined", "hooks of its own"},
               [] { Rank("joined"); });
}

TEST(Hooks, ReplicateAtEachMicroStepIsRefused) {
  const auto plugins = test::load(with_sharding("hooks", {option("mood", std::string("at micro-steps"))}));
  Topology t = topology_of(4, 2);
  EXPECT_NO_THROW(plugins->sharding().plan(small_model(), t));
  t.micro_steps = 2;
  expect_error(Code::config, {"replica_at must be boundary"}, [&] { plugins->sharding().plan(small_model(), t); });
}

TEST(Hooks, MemoryThatThePluginDoesNotTake) {
  const auto plugins = test::load(with_sharding("hooks"));
  Topology t = topology_of(4, 2);
  t.cuda = true;
  expect_error(Code::config, {"its hooks do not take CUDA memory"},
               [&] { plugins->sharding().plan(small_model(), t); });
}

TEST(Hooks, GatherReduceAndReplicate) {
  test::on_threads(2, [](int rank, test::MemoryGroup& group) {
    Rank r("good", rank);
    r.lane.groups[r.group] = &group;
    const at::Tensor everything = at::arange(16).to(at::kFloat);
    const at::Tensor shard = everything.narrow(0, r.range.begin, r.range.length).clone(), full = at::full({16}, 9.0);
    r.exchange().gather(r.call(), shard, full);
    EXPECT_TRUE(at::equal(full.narrow(0, 0, 15), everything.narrow(0, 0, 15)));
    EXPECT_EQ(full[15].item<double>(), 0);  // padding
    const at::Tensor sum = at::full({r.range.length}, 100.0);
    r.exchange().reduce(r.call(), full, sum);
    EXPECT_TRUE(at::equal(sum, shard * 2 + 100));
    r.exchange().step_end(3, true);
  });
}

TEST(Hooks, ReplicateAndOuterAmongPeers) {
  test::on_threads(2, [](int half, test::MemoryGroup& group) {
    Rank r("good", 2 * half);  // ranks 0 and 2 are peers
    r.lane.groups[r.peers] = &group;
    const at::Tensor shard = at::full({r.range.length}, 1.0 + half), calls = at::zeros({4});
    auto call = r.call();
    call.group = r.peers;
    r.exchange().replicate(call, shard);
    EXPECT_TRUE(at::equal(shard, at::full({r.range.length}, 3.0)));
    r.lane.states[{0, nullptr}] = calls;
    const OuterCall outer{3, &r.flat, &r.range, &r.lane};
    const at::Tensor master = at::full({r.range.length}, 2.0 + 2 * half);
    r.plugins->sharding().outer()->begin(outer, master);
    EXPECT_EQ(master[0].item<double>(), 2.0 + 2 * half);
    r.plugins->sharding().outer()->apply(outer, master);
    EXPECT_TRUE(at::equal(master, at::full({r.range.length}, 3.0)));  // (2 + 4) / 2
    EXPECT_EQ(calls[0].item<double>(), 1);
  });
}

// Two lanes of one instance at the same time, as a gather beside a reduction.
TEST(Hooks, TwoLanesAtOnce) {
  test::Meeting gathers(2), reductions(2);
  std::vector<std::jthread> threads;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::atomic<int> done = 0;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(std::make_unique<Rank>("good", rank));
  for (int rank = 0; rank < 2; ++rank)
    for (const bool gather : {true, false})
      threads.emplace_back([&, rank, gather] {
        Rank& r = *ranks[static_cast<std::size_t>(rank)];
        test::MemoryGroup group(gather ? gathers : reductions, rank);
        test::FakeLane lane;
        lane.groups[r.group] = &group, lane.planned = 1 << 30;
        auto call = r.call();
        call.lane = &lane;
        const at::Tensor shard = at::full({r.range.length}, 1.0), full = at::full({16}, 1.0);
        for (int k = 0; k < 200; ++k) {
          if (gather) r.exchange().gather(call, shard, full);
          if (!gather) r.exchange().reduce(call, full, shard);
        }
        EXPECT_EQ((gather ? full : shard)[0].item<double>(), gather ? 1 : 401);
        ++done;
      });
  threads.clear();
  EXPECT_EQ(done, 4);
}

void reduce_in(const std::string& mood) {
  Rank r(mood);
  const at::Tensor full = at::zeros({16}), shard = at::zeros({r.range.length});
  r.exchange().reduce(r.call(), full, shard);
}

TEST(Hooks, WhatGoesWrongSaysWhichHookUnitAndStep) {
  expect_error(Code::internal, {"[sharding] hooks (", "hooks.so): reduce of layers.0 at step 3: codes: do not fit"},
               [] { reduce_in("returns"); });
  expect_error(Code::internal, {"reduce of layers.0 at step 3 threw a C++ exception (thrown in a hook)"},
               [] { reduce_in("throws"); });
  expect_error(Code::internal, {"reduce of layers.0 at step 3: state: is 17, the plan has 1"},
               [] { reduce_in("wrong state"); });
  expect_error(Code::config, {"reduce of layers.0 at step 3: scratch: the hook takes", "scratch_bytes = 1048576"},
               [] { reduce_in("takes all"); });
  expect_error(Code::internal, {"step_end of step 8: ends badly, skipped"},
               [] { Rank("step_end").exchange().step_end(8, true); });
  expect_error(Code::numeric, {"[sharding] hooks: outer apply of layers.0 at step 3: layers.0: diverged"}, [] {
    Rank r("outer", 0, 1);
    r.lane.states[{0, nullptr}] = at::zeros({4});
    r.plugins->sharding().outer()->apply({3, &r.flat, &r.range, &r.lane}, at::zeros({15}));
  });
}

TEST(Hooks, AMasterIsNotSentWhileStepsGoOn) {
  expect_error(Code::internal, {"outer begin of layers.0 at step 3: send: is the master", "copy it first"}, [] {
    Rank r("sends master", 0, 1);
    r.range = {15, 0, 15};
    r.plugins->sharding().outer()->begin({3, &r.flat, &r.range, &r.lane}, at::zeros({15}));
  });
}

TEST(Hooks, AServiceCallThatFailedCannotBeIgnored) {
  expect_error(Code::internal, {"gather of layers.0 at step 3: dst: has dtype 0"}, [] {
    test::Meeting alone(1);
    test::MemoryGroup group(alone, 0);
    Rank r("ignores", 0, 1);
    auto call = r.call();
    call.ways = 1, r.range = {15, 0, 15};
    r.exchange().gather(call, at::zeros({15}), at::zeros({15}));
  });
}

// Through plugin.hpp, which makes a status of its own, and through a plugin that words it differently.
TEST(Hooks, AnEndedPeerIsNeverTheFirstCause) {
  test::Meeting meeting(2);
  test::LostGroup group(meeting, 0);
  for (const auto& [mood, text] : {std::pair<std::string, std::string>{"good", "lost its connection to rank 1"},
                                   {"hides", "it did not work (after: lost its connection to rank 1)"}}) {
    Rank r(mood);
    r.lane.groups[r.group] = &group;
    const Error e = test::error_of([&] { r.exchange().reduce(r.call(), at::zeros({16}), at::zeros({8})); });
    EXPECT_EQ(e.code(), Code::dist) << e.what();
    EXPECT_TRUE(e.secondary()) << e.what();
    test::expect_contains(e.what(), {"[sharding] hooks", "reduce of layers.0 at step 3: " + text});
  }
}

}  // namespace
}  // namespace shale

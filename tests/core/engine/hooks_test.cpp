// A strategy's own exchanges and outer steps: lanes, states, errors, and the same numbers as the engine's own.
#include "core/engine/hooks.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/model/model.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

at::Tensor scratch_like(Lane& lane, const at::Tensor& t) {
  return at::from_blob(lane.scratch(static_cast<std::int64_t>(t.nbytes())), t.sizes(), t.options());
}

// The engine's own exchanges once more, by other means.
class PlainExchange : public Exchange {
 public:
  void gather(const ExchangeCall& c, const at::Tensor& shard, const at::Tensor& full) override {
    ++gathers;
    auto* group = c.lane->group(c.group);
    EXPECT_EQ(group->size(), c.ways);
    full.narrow(0, c.range->chunk * c.ways - c.range->chunk, c.range->chunk).zero_();  // padding
    auto mine = full.narrow(0, c.range->chunk * group->rank(), c.range->chunk);
    mine.zero_();
    mine.narrow(0, 0, c.range->length).copy_(shard);
    group->all_gather(full)->wait();
  }
  void reduce(const ExchangeCall& c, const at::Tensor& full, const at::Tensor& shard) override {
    ++reductions;
    if (fails_at_reduce > 0 && reductions == fails_at_reduce) fail(Code::internal, "reduce gives up");
    EXPECT_EQ(shard.numel(), c.range->length);
    auto pieces = scratch_like(*c.lane, full);
    c.lane->group(c.group)->all_to_all(pieces, full)->wait();
    for (int r = 0; r < c.ways; ++r) shard.add_(pieces.narrow(0, c.range->chunk * r, c.range->length));
  }
  void replicate(const ExchangeCall& c, const at::Tensor& shard) override {
    ++replicas;
    EXPECT_TRUE(c.last);
    c.lane->group(c.group)->all_reduce(shard, Reduction::sum)->wait();
  }
  void step_end(std::int64_t step, bool skipped) override { ends.push_back(step * (skipped ? -1 : 1)); }

  std::atomic<int> gathers{0}, reductions{0}, replicas{0};
  int fails_at_reduce = 0;
  std::vector<std::int64_t> ends;
};

void use_hooks(ShardPlan& plan) {
  plan.own.gather = plan.own.reduce = plan.own.replicate = plan.own.step_end = true;
  for (auto& u : plan.units) u.scratch_bytes = 1 << 20;
}

TEST(Hooks, OwnExchangesGiveWhatTheEngineGives) {
  for (auto strategy : {"full_shard", "keep", "after_update", "hybrid", "no_shard"})
    for (int micro_steps : {1, 3})
      for (auto reduce_at : {SyncAt::micro_step, SyncAt::boundary}) {
        SCOPED_TRACE(str(strategy, ", micro-steps ", micro_steps, ", reduce at ", static_cast<int>(reduce_at)));
        Case c{.world = std::string(strategy) == "hybrid" ? 4 : 3, .micro_steps = micro_steps, .strategy = strategy};
        c.reduce_at = reduce_at;
        on_ranks(c.world, [&](World& world) {
          PlainExchange own;
          Case with = c;
          with.change = use_hooks, with.hooks.exchange = &own;
          Trainer trainer(world, with);
          const auto dense = train_dense(trainer.model, kSteps, c.world * c.micro_steps, kRate);
          for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(trainer.step(i), dense.losses[i], 1e-12) << "step " << i;
          EXPECT_LT(apart(trainer.weights(), dense.weights), 1e-12);
          EXPECT_EQ(own.ends, (std::vector<std::int64_t>{1, 2, 3}));
          const bool shards = c.strategy != "no_shard";
          EXPECT_EQ(own.gathers > 0, shards);
          EXPECT_EQ(own.reductions > 0, shards);
          EXPECT_EQ(own.replicas > 0, c.strategy == "hybrid" || !shards);
          const auto traffic = trainer.engine->traffic_by_purpose();
          EXPECT_EQ(traffic.at("gather")[Op::all_gather].bytes > 0, shards);
          EXPECT_EQ(traffic.at("reduce")[Op::all_to_all].bytes > 0, shards);
          EXPECT_EQ(traffic.count("replicas"), 0u);  // no group of the engine's own beside the plugin's
        });
      }
}

TEST(Hooks, AnErrorOfOneRankEndsAllAndIsTheFirstCause) {
  on_ranks(2, [&](World& world) {
    PlainExchange own;
    if (world.rank() == 1) own.fails_at_reduce = 2;
    Case c{.world = 2};
    c.change = use_hooks, c.hooks.exchange = &own;
    Trainer trainer(world, c);
    try {
      trainer.step(0);
      ADD_FAILURE() << "rank " << world.rank() << " went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.secondary(), world.rank() == 0) << e.what();
      if (world.rank() == 1) {
        EXPECT_STREQ(e.what(), "reduce gives up");
      }
    }
  });
}

struct Lanes {
  explicit Lanes(std::int64_t scratch = 0, double limit = 100) : states(plan, shards, at::kCPU, "me", 1) {
    LaneSpec spec;
    spec.name = "test", spec.scratch = scratch, spec.limit = limit, spec.states = &states;
    spec.groups.resize(2);
    lane = std::make_unique<WorkLane>(std::move(spec));
  }
  ShardPlan plan;
  std::deque<Shard> shards;
  StateStore states;
  std::unique_ptr<WorkLane> lane;
};

TEST(WorkLane, RunsInOrderAndStopsAfterAnError) {
  Lanes l;
  std::vector<int> order;
  Works works;
  for (int i = 0; i < 5; ++i)
    works.push_back(l.lane->submit(
        [&order, i](Lane&) {
          order.push_back(i);
          if (i == 2) fail(Code::config, "two");
        },
        0));
  works[0]->wait(), works[1]->wait();
  EXPECT_THROW(works[2]->wait(), Error);
  try {
    works[4]->wait();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_TRUE(e.secondary());
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(WorkLane, ScratchIsAlignedDistinctAndLimited) {
  Lanes l(1000);
  l.lane
      ->submit(
          [](Lane& lane) {
            auto *a = static_cast<char*>(lane.scratch(10)), *b = static_cast<char*>(lane.scratch(990));
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0u);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 256, 0u);
            EXPECT_TRUE(b >= a + 10 || a >= b + 990);
          },
          1000)
      ->wait();
  l.lane->submit([](Lane& lane) { lane.scratch(1000); }, 1000)->wait();  // free again after each hook
  const auto work = l.lane->submit([](Lane& lane) { lane.scratch(999), lane.scratch(2); }, 1000);
  try {
    work->wait();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("1001 bytes of scratch, its plan says 1000"), std::string::npos) << e.what();
  }
}

TEST(WorkLane, AHookThatDoesNotReturnIsAnErrorNotAHang) {
  auto released = std::make_shared<std::atomic<bool>>(false);
  {
    Lanes l(0, 0.05);
    const auto work = l.lane->submit(
        [released](Lane&) {
          while (!*released) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        },
        0);
    try {
      work->wait();
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("did not return from the test lane within 0.05 s"), std::string::npos);
    }
    *released = true;
  }
}

TEST(WorkLane, SaysWhenInputsHaveBeenRead) {
  Lanes l;
  std::atomic<bool> go{false}, calls{false};
  const auto work = l.lane->submit(
      [&](Lane& lane) {
        while (!go) std::this_thread::yield();
        lane.group(0);
        calls = true;
        while (go) std::this_thread::yield();
      },
      0);
  go = true;
  l.lane->wait_until_inputs_read();  // returns although the hook has not ended
  go = false;
  work->wait();
  EXPECT_TRUE(calls);
}

TEST(StateStore, HasFirstValuesOfEveryKindAndResets) {
  on_ranks(2, [&](World& world) {
    Case c{.world = 2};
    c.change = [](ShardPlan& plan) {
      const auto add = [&](const char* name, StateScope scope, StateFirst first, std::int64_t numel) {
        StateSpec s;
        s.name = name, s.scope = scope, s.first = first, s.numel = numel, s.fill = 7, s.dtype = at::kFloat;
        plan.states.push_back(s);
      };
      add("q", StateScope::global, StateFirst::normal, 10);
      add("anchor", StateScope::shard, StateFirst::master, 0);
      add("error", StateScope::shard_rank, StateFirst::fill, 0);
      add("mine", StateScope::rank, StateFirst::fill, 3);
    };
    c.hooks.plugin = "me", c.hooks.seed = 5;
    Trainer trainer(world, c);
    auto& states = trainer.engine->states();
    EXPECT_TRUE(at::equal(states.find(0, nullptr), normal_values(5, "me/q", 0, 10).to(at::kFloat)));
    EXPECT_EQ(states.find(3, nullptr).sum().item<float>(), 21);
    std::int64_t elements = 13;
    for (auto& shard : trainer.engine->shards()) {
      const auto anchor = states.find(1, &shard.layout), error = states.find(2, &shard.layout);
      EXPECT_TRUE(at::equal(anchor, shard.master.to(at::kFloat)));
      EXPECT_EQ(error.numel(), shard.range.length);
      error.fill_(1), states.reset(2, &shard.layout);
      EXPECT_EQ(error.sum().item<float>(), 7.f * static_cast<float>(shard.range.length));
      elements += 2 * shard.range.length;
    }
    EXPECT_EQ(trainer.engine->memory().states, elements * 4);
    EXPECT_THROW(states.find(1, nullptr), Error);
    EXPECT_THROW(states.find(9, nullptr), Error);
  });
}

// Every `every` steps the masters become the mean of the islands'.
class Averaging : public OuterStep {
 public:
  explicit Averaging(int peers) : peers_(peers) {}
  void begin(const OuterCall& c, const at::Tensor& master) override {
    begun.push_back(c.step);
    auto delta = c.lane->state(0, c.flat);
    delta.copy_(master);
    if (auto* group = c.lane->group(peers_)) {
      group->all_reduce(delta, Reduction::sum)->wait();
      delta.div_(group->size());
    }
  }
  void apply(const OuterCall& c, const at::Tensor& master) override {
    applied.push_back(c.step);
    master.copy_(c.lane->state(0, c.flat));
  }
  std::vector<std::int64_t> begun, applied;  // steps, one per flat

 private:
  int peers_;
};

Case islands(int every, int delay) {
  Case c{.world = 2, .strategy = "no_shard"};
  c.change = [=](ShardPlan& plan) {
    plan.own.outer = true;
    StateSpec delta;
    delta.name = "delta", delta.scope = StateScope::shard, delta.dtype = at::kDouble;
    plan.states.push_back(delta);
    for (auto& u : plan.units) u.replica_at = SyncAt::never, u.outer_every = every, u.outer_delay = delay;
  };
  return c;
}

TEST(Hooks, IslandsTrainApartAndMeetEveryFewSteps) {
  on_ranks(2, [&](World& world) {
    Averaging average(kWorldGroup);
    Case c = islands(2, 0);
    c.hooks.outer = &average;
    Trainer trainer(world, c);
    const auto equal_masters = [&] {
      bool same = true;
      for (auto& s : trainer.engine->shards()) {
        auto sum = s.master.clone();
        world.everyone().all_reduce(sum, Reduction::sum)->wait();
        same = same && at::equal(sum, s.master * 2);
      }
      return same;
    };
    for (int i = 1; i <= 4; ++i) {
      trainer.step(i - 1);
      EXPECT_EQ(equal_masters(), i % 2 == 0) << "step " << i;
    }
    for (auto s : average.begun) EXPECT_EQ(s % 2, 0);
    EXPECT_EQ(average.begun, average.applied);
    EXPECT_EQ(trainer.engine->traffic_by_purpose().count("replicas"), 0u);
    for (auto& s : trainer.engine->shards()) EXPECT_TRUE(s.drifts && s.counted);
  });
}

TEST(Hooks, ADelayedOuterStepUsesTheMastersItBeganWith) {
  on_ranks(2, [&](World& world) {
    Averaging average(kWorldGroup);
    Case c = islands(3, 1);
    c.hooks.outer = &average;
    Trainer trainer(world, c);
    std::vector<at::Tensor> mean;
    for (int i = 1; i <= 4; ++i) {
      trainer.step(i - 1);
      if (i == 3)
        for (auto& s : trainer.engine->shards()) {
          mean.push_back(s.master.clone());
          world.everyone().all_reduce(mean.back(), Reduction::sum)->wait();
          mean.back().div_(2);
        }
    }
    trainer.engine->drain();
    std::size_t k = 0;
    for (auto& s : trainer.engine->shards()) EXPECT_TRUE(at::equal(s.master, mean[k++]));
    for (auto s : average.applied) EXPECT_EQ(s, 4);
    for (auto s : average.begun) EXPECT_EQ(s, 3);
  });
}

}  // namespace
}  // namespace shale

// Joined units: the same training with fewer gathers, and what cannot be joined.
#include "core/engine/join.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/base/error_text.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const Model& m) {
  std::vector<std::string> out;
  for (auto& u : m.info.units) out.push_back(u.name);
  return out;
}

struct Joined {
  Model model;
  PrecisionTable table;
  ShardPlan plan;
  Joined(const Case& c, const std::function<void(Joined&)>& change = {}) : model(mini_model(c.model)) {
    plan = make_plan(c, model.info), table = table_of(model.info, {});
    if (change) change(*this);
    join_units(model, table, plan);
  }
};

TEST(JoinUnits, MakesOneUnitOfTheLayers) {
  const auto single = mini_model({.layers = 5});
  const Joined j({.join = 2, .model = {.layers = 5}}, [](Joined& before) {
    before.plan.units[3].prefetch = 7, before.table.units[4][1].grad = at::kDouble;
  });
  EXPECT_THAT(names(j.model), ElementsAre("embedding", "layer0+layer1", "layer2+layer3", "layer4", "head"));
  EXPECT_EQ(j.model.forward.size(), 5u);
  EXPECT_EQ(j.model.info.numel(), single.info.numel());
  std::vector<std::string> parameters;
  for (auto& p : j.model.info.units[1].parameters) parameters.push_back(p.name);
  EXPECT_THAT(parameters, ElementsAre("layer0.norm", "layer0.gate", "layer0.up", "layer0.down", "layer1.norm",
                                      "layer1.gate", "layer1.up", "layer1.down"));
  EXPECT_EQ(j.plan.units.size(), 5u);
  EXPECT_EQ(j.plan.units[2].prefetch, 7);  // the numbers of the first
  EXPECT_EQ(j.table.units[2][5].grad, at::kDouble);
  EXPECT_EQ(j.model.info.units[1].layers, 2);
  EXPECT_EQ(j.model.info.units[3].layers, 1);
  for (auto& u : j.plan.units) EXPECT_FALSE(u.join);
}

TEST(JoinUnits, NamesTheLayersOfADecoderShortly) {
  Architecture a;
  a.n_layers = 4;
  auto model = make_model(a, {}, 8);
  auto plan = make_plan({.join = 3, .model = {}}, model.info);
  auto table = table_of(model.info, {});
  join_units(model, table, plan);
  EXPECT_THAT(names(model), ElementsAre("embedding", "layers.0+1+2", "layers.3", "head"));
}

TEST(JoinUnits, KeepsTheOrderOfTheRun) {
  const Joined j({.model = {.layers = 3, .reused = true}}, [](Joined& before) { before.plan.units[3].join = true; });
  EXPECT_THAT(names(j.model), ElementsAre("embedding", "layer0", "layer1+layer2", "head"));
  EXPECT_THAT(j.model.info.order, ElementsAre(0, 1, 2, 1, 3));
}

std::string refusal(const MiniOptions& model, const std::function<void(Joined&)>& change) {
  return error_text(Code::config, [&] { Joined j({.model = model}, change); });
}

TEST(JoinUnits, RefusesWhatIsNoPairOfLayers) {
  const auto join = [](std::size_t unit) { return [=](Joined& j) { j.plan.units[unit].join = true; }; };
  EXPECT_THAT(refusal({}, join(0)), HasSubstr("[sharding] the plan joins unit embedding to the one before it, but it "
                                              "is the first"));
  EXPECT_THAT(refusal({}, join(1)), HasSubstr("joins unit layer0 to the one before it, but only layers can be joined, "
                                              "and embedding is none"));
  EXPECT_THAT(refusal({}, join(4)), HasSubstr("only layers can be joined, and head is none"));
  EXPECT_THAT(refusal({.reused = true}, join(2)), HasSubstr("joins unit layer1 to the one before it, but layer0 does "
                                                            "not run once"));
  EXPECT_THAT(refusal({},
                      [](Joined& j) {
                        j.model.info.order = {0, 2, 1, 3, 4}, j.plan.units[2].join = true;
                      }),
              HasSubstr("it does not run right after layer0"));
  EXPECT_THAT(refusal({}, [](Joined& j) { j.model.info.units[1].borrows = {"x"}, j.plan.units[2].join = true; }),
              HasSubstr("uses parameters of another unit"));
  EXPECT_THAT(refusal({}, [](Joined& j) { j.plan.own.gather = j.plan.units[2].join = true; }),
              HasSubstr("a strategy with hooks works on single units"));
}

// To the bit: every parameter meets the same numbers in the same order.
TEST(JoinUnits, TrainLikeSingleOnes) {
  on_ranks(2, [](World& world) {
    for (auto strategy : {"full_shard", "keep", "no_shard"})
      for (bool checkpoint : {false, true}) {
        SCOPED_TRACE(str(strategy, ", checkpointing ", checkpoint));
        Case c{.micro_steps = 2, .strategy = strategy, .checkpoint = checkpoint};
        c.weight_slots = 1, c.model = {.layers = 5, .tied = true, .frozen = {"layer0.up", "layer3.norm"}};
        Trainer single(world, c);
        c.join = 2;
        Trainer joined(world, c);
        EXPECT_EQ(joined.model.info.units.size(), 5u);
        for (int i = 0; i < kSteps; ++i) EXPECT_EQ(joined.step(i), single.step(i)) << "step " << i;
        EXPECT_EQ(apart(joined.weights(), single.weights()), 0);
      }
  });
}

TEST(JoinUnits, GatherLessOftenAndSendTheSame) {
  on_ranks(2, [](World& world) {
    const int layers = 6;
    Case c{.strategy = "keep", .model = {.layers = layers}};
    Trainer single(world, c);
    c.join = 2;
    Trainer joined(world, c);
    single.step(0), joined.step(0);
    EXPECT_EQ(single.engine->counts().gathers, layers + 2);
    EXPECT_EQ(joined.engine->counts().gathers, layers / 2 + 2);
    EXPECT_EQ(joined.engine->counts().reductions, layers / 2 + 2);
    for (auto op : {Op::all_gather, Op::reduce_scatter})
      EXPECT_EQ(joined.engine->traffic()[op].bytes, single.engine->traffic()[op].bytes);
    c.strategy = "full_shard";
    Trainer turns(world, c);
    turns.step(0);
    EXPECT_EQ(turns.engine->counts().gathers, 2 * layers / 2 - 2 + 2);  // units that take turns in two slots
  });
}

}  // namespace
}  // namespace shale

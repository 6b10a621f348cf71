// What ranks must have in common is compared before anything is allocated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/train/run.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/comm/ranks.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

struct Replicated final : ShardingStrategy {
  ShardPlan plan(const ModelInfo& model, const Topology& t) override {
    ShardPlan plan;
    plan.groups = {self_partition(t.world), world_partition(t.world)};
    plan.units.assign(model.units.size(), {.replica_group = kWorldGroup});
    return plan;
  }
};

struct Rounding final : PrecisionPolicy {
  PrecisionTable plan(const ModelInfo& model, const Topology&) override {
    PrecisionTable table;
    for (auto& unit : model.units) table.units.emplace_back(unit.parameters.size());
    if (odd) table.units[0][0].gather = at::kBFloat16;
    return table;
  }
  bool odd = false;
};

struct OnDevice final : OffloadPolicy {
  OffloadPlan plan(const ModelInfo& model, const Topology&, const OffloadAsk&) override {
    OffloadPlan plan;
    plan.units.resize(model.units.size());
    return plan;
  }
};

struct RankPlugins final : Plugins {
  ShardingStrategy& sharding() override { return replicated; }
  PrecisionPolicy& precision() override { return rounding; }
  OffloadPolicy& offload() override { return on_device; }
  CheckpointFormat& checkpoint() override { return plain; }
  const std::vector<LoadedPlugin>& loaded() const override { return facts; }

  Replicated replicated;
  Rounding rounding;
  OnDevice on_device;
  test::PlainFormat plain;
  std::vector<LoadedPlugin> facts{{"sharding", "mine", "0.1.0", "", "/mine.so", "hash", {}}};
};

class Setup : public testing::Test {
 protected:
  Setup() {
    config.training.seq_len = 8, config.training.local_batch_size = 1;
    config.training.dataset_path = folder / "data.txt";
    test::write_file(config.training.dataset_path, std::string(1000, 'a'));
  }

  // What the launcher says when rank 1 does `differently` what the others do.
  std::string refusal(const std::function<void(Config&, bool& odd)>& differently) {
    const auto outcome = run_ranks(local_launch(2), [&](World& world) {
      RankPlugins plugins;
      if (world.rank() == 1) differently(config, plugins.rounding.odd);
      const Log log(world.rank());
      const auto device = cpu_device();
      prepare({config, log, world, plugins, *device,
               [&](const Partition& p, const std::string& name) { return world.group(p, name); }});
    });
    return outcome.lines.empty() ? "" : outcome.lines.back();
  }

  test::TempFolder folder;
  Config config;
};

TEST_F(Setup, EqualRanksAgree) {
  EXPECT_EQ(refusal([](Config&, bool&) {}), "");
}

TEST_F(Setup, ADtypeThatDependsOnTheRankIsRefused) {
  EXPECT_THAT(refusal([](Config&, bool& odd) { odd = true; }),
              HasSubstr("[precision] plugin uniform made one plan on rank 0 and another on rank 1"));
}

TEST_F(Setup, DataThatDifferIsRefused) {
  const auto text = refusal([&](Config& c, bool&) {
    c.training.dataset_path = folder / "other.txt";
    test::write_file(c.training.dataset_path, std::string(900, 'a'));
  });
  EXPECT_THAT(text, HasSubstr("E-input"));
  EXPECT_THAT(text, HasSubstr("holds one number of sequences on rank 0 and another on rank 1; give every host"));
}

TEST_F(Setup, AModelThatDiffersIsRefused) {
  EXPECT_THAT(refusal([](Config& c, bool&) { c.model.flavor = "llama2-7b"; }),
              HasSubstr("describes one model on rank 0 and another on rank 1"));
}

}  // namespace
}  // namespace shale

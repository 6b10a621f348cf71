#include "core/train/step.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/optim/norm.h"
#include "tests/core/base/error_text.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/train/mini_run.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

class TrainStep : public testing::Test {
 protected:
  // One weight of the head is not a number, so the loss is none either.
  static void spoil(MiniRun& run) {
    const at::NoGradGuard off;
    run->engine->shards().back().master.narrow(0, 10, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    run->engine->weights_changed();
  }

  test::TempFolder folder;
  Config config;
};

TEST_F(TrainStep, ReportsWhatItDid) {
  MiniRun run(config);
  run.open_data(folder / "data");
  run->schedule.warmup_steps = 1;
  const auto r = train_step(*run);
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.tokens, 2 * 5);
  EXPECT_NEAR(r.loss, std::log(13), 1.5);
  EXPECT_EQ(r.lr, run->schedule.at(0));
  EXPECT_FALSE(r.skipped);
  EXPECT_EQ(r.stop_signal, 0);
  EXPECT_GT(r.seconds, 0);
  EXPECT_EQ(r.grad_norm, std::sqrt(squared_norm(run->engine->shards())));
  EXPECT_EQ(run->progress.step, 1);
  EXPECT_EQ(run->progress.tokens, 10);
  EXPECT_EQ(train_step(*run).step, 2);
  EXPECT_EQ(run->optimizer->updates().at("embed"), 2);
}

TEST_F(TrainStep, LearnsWhatItSeesAgain) {
  MiniRun run(config);
  run.open_data(folder / "data");
  const double first = train_step(*run).loss;
  double last = first;
  for (int i = 0; i < 100; ++i) {
    run->progress.cursor = {};  // the same batch
    run->progress.step = 0;     // the same rate
    last = train_step(*run).loss;
  }
  EXPECT_LT(last, 0.5 * first);
}

// Clipping scales what the optimizer sees, not what is told: two runs differ in the norm's limit only.
TEST_F(TrainStep, ClipsAfterTellingTheNorm) {
  config.training.max_norm = 0;
  MiniRun whole(config);
  config.training.max_norm = 1e-3;
  MiniRun clipped(config);
  whole.open_data(folder / "data"), clipped.open_data(folder / "data");
  EXPECT_EQ(train_step(*whole).grad_norm, train_step(*clipped).grad_norm);
  const auto& shard = clipped->engine->shards().front();
  const auto ratio = clipped->engine->shards().front().exp_avg.norm().item<double>() /
                     whole->engine->shards().front().exp_avg.norm().item<double>();
  EXPECT_NEAR(ratio, 1e-3 / std::sqrt(squared_norm(whole->engine->shards())), 1e-5 * ratio);
  EXPECT_GT(shard.grad.norm().item<double>(), 1e-3);
}

// A power of two as loss scale changes no bit.
TEST_F(TrainStep, ALossScaleCancelsOut) {
  MiniRun plain(config), scaled(config);
  plain.open_data(folder / "data"), scaled.open_data(folder / "data");
  LossScale policy;
  policy.initial = 1024;
  scaled->scaler = std::make_unique<LossScaler>(policy);
  for (int i = 0; i < 3; ++i) {
    const auto a = train_step(*plain), b = train_step(*scaled);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_TRUE(plain.weights().equal(scaled.weights()));
}

TEST_F(TrainStep, ALossThatIsNoNumberStopsTheRun) {
  MiniRun run(config);
  run.open_data(folder / "data");
  train_step(*run);
  spoil(run);
  const auto text = error_text(Code::numeric, [&] { train_step(*run); });
  EXPECT_THAT(text, HasSubstr("the loss is"));
  EXPECT_THAT(text, HasSubstr("nan_policy = \"skip\""));
}

TEST_F(TrainStep, SkipsSuchAStepWhenToldTo) {
  config.training.nan_policy = "skip";
  MiniRun run(config);
  run.open_data(folder / "data");
  train_step(*run);
  spoil(run);
  const auto before = run.weights().nan_to_num();
  const auto r = train_step(*run);
  EXPECT_TRUE(r.skipped);
  EXPECT_EQ(r.step, 2);
  EXPECT_EQ(run->progress.step, 2);
  EXPECT_TRUE(run.weights().nan_to_num().equal(before));
  EXPECT_EQ(run->optimizer->updates().at("embed"), 1);
}

// Under a loss scale an overflow of the gradients is expected: the scale shrinks and the run goes on.
TEST_F(TrainStep, AnOverflowOfTheLossScaleShrinksIt) {
  MiniRun run(config);
  run.open_data(folder / "data");
  LossScale policy;
  policy.initial = policy.max = 0x1p127, policy.backoff = 0x1p-100, policy.growth_steps = 100;
  run->scaler = std::make_unique<LossScaler>(policy);
  // Weights so large that the gradients of the scaled loss are too.
  const at::NoGradGuard off;
  for (auto& s : run->engine->shards()) s.master.mul_(3);
  run->engine->weights_changed();
  const auto before = run.weights();
  const auto r = train_step(*run);
  ASSERT_TRUE(r.skipped);
  EXPECT_TRUE(std::isfinite(r.loss));
  EXPECT_EQ(run->scaler->scale(), 0x1p27);
  EXPECT_TRUE(run.weights().equal(before));
  EXPECT_FALSE(train_step(*run).skipped);
}

TEST_F(TrainStep, TellsOfASignal) {
  MiniRun run(config);
  run.open_data(folder / "data");
  const std::function<int()> signal = [] { return 15; };
  run->stop_signal = &signal;
  EXPECT_EQ(train_step(*run).stop_signal, 15);
}

}  // namespace
}  // namespace shale

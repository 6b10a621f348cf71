#include "core/precision/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/base/error_text.h"

namespace shale {
namespace {

LossScale policy() {
  LossScale p;
  p.initial = 1024, p.growth_steps = 3, p.max = 4096, p.min = 256;
  return p;
}

void update(LossScaler& s, const std::string& steps) {  // '.' = finite, 'x' = overflow
  for (char c : steps) s.update(c == '.');
}

TEST(LossScaler, WithoutAPolicyIsOne) {
  LossScaler s{std::nullopt};
  update(s, "....xxxxxxxxxxxx" + std::string(200, 'x'));
  EXPECT_EQ(s.scale(), 1);
}

TEST(LossScaler, GrowsAfterCleanStepsUpToTheMost) {
  LossScaler s{policy()};
  update(s, "..");
  EXPECT_EQ(s.scale(), 1024);
  update(s, ".");
  EXPECT_EQ(s.scale(), 2048);
  update(s, "...");
  EXPECT_EQ(s.scale(), 4096);
  update(s, "......");
  EXPECT_EQ(s.scale(), 4096);
}

TEST(LossScaler, ShrinksOnOverflowDownToTheLeast) {
  LossScaler s{policy()};
  update(s, "x");
  EXPECT_EQ(s.scale(), 512);
  update(s, "xxx");
  EXPECT_EQ(s.scale(), 256);
}

TEST(LossScaler, AnOverflowRestartsTheCleanCount) {
  LossScaler s{policy()};
  update(s, "..x");
  EXPECT_EQ(s.scale(), 512);
  update(s, "..");
  EXPECT_EQ(s.scale(), 512);
  update(s, ".");
  EXPECT_EQ(s.scale(), 1024);
}

TEST(LossScaler, HysteresisForgivesOverflows) {
  auto p = policy();
  p.hysteresis = 2;
  LossScaler s{p};
  update(s, "x");
  EXPECT_EQ(s.scale(), 1024);
  update(s, ".x");  // the second since the last change
  EXPECT_EQ(s.scale(), 512);
  update(s, "x...");  // growth forgets it
  EXPECT_EQ(s.scale(), 1024);
  update(s, "x");
  EXPECT_EQ(s.scale(), 1024);
}

TEST(LossScaler, AStaticScaleStays) {
  auto p = policy();
  p.growth_steps = 0;
  LossScaler s{p};
  update(s, "......x.x......");
  EXPECT_EQ(s.scale(), 1024);
}

TEST(LossScaler, TooManySkipsInARowEndTheRun) {
  for (int growth_steps : {0, 3}) {
    auto p = policy();
    p.max_skips = 4, p.growth_steps = growth_steps;
    LossScaler s{p};
    update(s, "xxxx.xxxx");  // a clean step between
    EXPECT_THAT(error_text(Code::numeric, [&] { s.update(false); }),
                ::testing::HasSubstr("gradients were not finite in 5 steps in a row at loss scale"));
  }
}

TEST(LossScaler, ARestoredStateGoesOnAlike) {
  auto p = policy();
  p.hysteresis = 2, p.max_skips = 3;
  const std::string all = "..x.....xx.x...xxx..";
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    LossScaler straight{p}, first{p}, second{p};
    update(straight, all), update(first, all.substr(0, cut));
    second.restore(first.state());
    EXPECT_EQ(second.scale(), first.scale());
    update(second, all.substr(cut));
    EXPECT_EQ(second.scale(), straight.scale());
    EXPECT_EQ(second.state().clean, straight.state().clean);
    EXPECT_EQ(second.state().overflows, straight.state().overflows);
    EXPECT_EQ(second.state().skips, straight.state().skips);
  }
}

TEST(LossScaler, ARunWithoutAPolicyIgnoresAScaleOfTheSnapshot) {
  LossScaler s{std::nullopt};
  s.restore({65536, 1, 1, 1});
  EXPECT_EQ(s.scale(), 1);
}

}  // namespace
}  // namespace shale

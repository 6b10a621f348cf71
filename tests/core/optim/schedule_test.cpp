#include "core/optim/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/base/text.h"

namespace shale {
namespace {

Schedule schedule(const std::string& type, double ratio = -1, double least = 0) {
  return {.lr = 2e-3,
          .min_lr_factor = least,
          .warmup_steps = 9,
          .total_steps = 110,
          .decay_ratio = ratio,
          .decay_type = type};
}

const auto kTypes = {"linear", "cosine", "sqrt"};

TEST(Schedule, WarmsUpInEqualStepsFromAboveZero) {
  const auto s = schedule("linear");
  for (int step = 0; step < 9; ++step) EXPECT_DOUBLE_EQ(s.at(step), 2e-3 * (step + 1) / 10) << step;
  EXPECT_DOUBLE_EQ(s.at(9), 2e-3);
}

TEST(Schedule, DecaysFromOneToTheLeast) {
  for (auto type : kTypes)
    for (double least : {0.0, 0.1, 1.0}) {
      SCOPED_TRACE(shale::str(type, ", min_lr_factor ", least));
      const auto s = schedule(type, -1, least);
      EXPECT_DOUBLE_EQ(s.at(9), 2e-3);
      EXPECT_NEAR(s.at(110), 2e-3 * least, 1e-18);
      for (int step = 10; step <= 110; ++step) {
        EXPECT_LE(s.at(step), s.at(step - 1)) << step;
        EXPECT_GE(s.at(step), 2e-3 * least - 1e-18) << step;
      }
    }
}

// x = 25 / 101 and 50 / 101 of the decay.
TEST(Schedule, HasTheShapeItIsNamedFor) {
  const double x = 25.0 / 101, y = 50.0 / 101;
  const auto at = [](const char* type, int step) { return schedule(type).at(step) / 2e-3; };
  EXPECT_NEAR(at("linear", 34), 1 - x, 1e-15);
  EXPECT_NEAR(at("linear", 59), 1 - y, 1e-15);
  EXPECT_NEAR(at("cosine", 34), (1 + std::cos(M_PI * x)) / 2, 1e-15);
  EXPECT_NEAR(at("cosine", 59), (1 + std::cos(M_PI * y)) / 2, 1e-15);
  EXPECT_NEAR(at("sqrt", 34), 1 - std::sqrt(x), 1e-15);
  EXPECT_NEAR(at("sqrt", 59), 1 - std::sqrt(y), 1e-15);
  EXPECT_NEAR(schedule("linear", -1, 0.2).at(34) / 2e-3, 0.2 + 0.8 * (1 - x), 1e-15);
}

TEST(Schedule, StaysUntilTheDecayBegins) {
  for (auto type : kTypes) {
    const auto s = schedule(type, 0.2);  // the last 22 steps
    for (int step = 9; step <= 88; ++step) EXPECT_DOUBLE_EQ(s.at(step), 2e-3) << type << " " << step;
    EXPECT_LT(s.at(89), 2e-3) << type;
    EXPECT_NEAR(s.at(110), 0, 1e-18) << type;
  }
}

TEST(Schedule, TheWholeRunCannotDecayBeforeTheWarmUpIsOver) {
  for (auto type : kTypes)
    for (int step = 0; step <= 120; ++step)
      EXPECT_EQ(schedule(type, 1).at(step), schedule(type, -1).at(step)) << type << " " << step;
}

TEST(Schedule, ARatioOfZeroNeverDecays) {
  for (int step : {9, 50, 109, 110, 1000}) EXPECT_DOUBLE_EQ(schedule("linear", 0, 0.1).at(step), 2e-3) << step;
}

TEST(Schedule, StaysAtTheLeastAfterTheEnd) {
  for (auto type : kTypes)
    for (int step : {110, 111, 5000, 1 << 30}) EXPECT_NEAR(schedule(type, 0.5, 0.1).at(step), 2e-4, 1e-18) << type;
}

TEST(Schedule, WorksWithoutWarmUpAndWithNothingElse) {
  Schedule s{.lr = 1, .warmup_steps = 0, .total_steps = 4};
  EXPECT_DOUBLE_EQ(s.at(0), 1);
  EXPECT_DOUBLE_EQ(s.at(3), 0.25);  // the last step still learns
  s.total_steps = 1;
  EXPECT_DOUBLE_EQ(s.at(0), 1);
  s.warmup_steps = 200, s.total_steps = 10;  // a run shorter than its warm-up
  for (int step = 0; step < 10; ++step) EXPECT_DOUBLE_EQ(s.at(step), (step + 1) / 201.0);
}

}  // namespace
}  // namespace shale

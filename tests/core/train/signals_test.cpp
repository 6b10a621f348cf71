#include "core/train/signals.h"

#include <csignal>

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(StopSignals, RemembersTheFirst) {
  const StopSignals signals;
  EXPECT_EQ(signals.received(), 0);
  std::raise(SIGTERM);
  EXPECT_EQ(signals.received(), SIGTERM);
}

// Whoever signals a whole process group delivers several: the snapshot under way must not be lost.
TEST(StopSignals, MoreSigtermsChangeNothing) {
  const StopSignals signals;
  std::raise(SIGINT);
  for (int i = 0; i < 3; ++i) std::raise(SIGTERM);
  EXPECT_EQ(signals.received(), SIGINT);
}

TEST(StopSignals, ASecondSigintEndsTheProcessAtOnce) {
  for (int first : {SIGINT, SIGTERM})
    EXPECT_EXIT(
        {
          const StopSignals signals;
          std::raise(first);
          std::raise(SIGINT);
          _exit(0);
        },
        testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignals, AreForgottenByTheNext) {
  {
    const StopSignals signals;
    std::raise(SIGTERM);
  }
  const StopSignals next;
  EXPECT_EQ(next.received(), 0);
  std::raise(SIGINT);
  EXPECT_EQ(next.received(), SIGINT);
}

TEST(StopSignals, EndTheProcessWhenNobodyWaitsForThem) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        std::raise(SIGTERM);
        _exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace shale

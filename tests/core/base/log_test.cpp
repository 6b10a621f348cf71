#include "core/base/log.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace shale {
namespace {

std::string said(const auto& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, PlainLinesWithAPrefix) {
  EXPECT_EQ(said([] { Log().info("step 1"); }), "shale: step 1\n");
  EXPECT_EQ(said([] { Log().warning("few sequences"); }), "shale: warning: few sequences\n");
  EXPECT_EQ(said([] { Log().error("E-config: no such key"); }), "shale: E-config: no such key\n");
  EXPECT_EQ(said([] { Log().debug("hidden"); }), "");
  EXPECT_EQ(said([] { Log(0, Log::Level::debug).debug("seen"); }), "shale: debug: seen\n");
}

TEST(Log, OtherRanksSayErrorsOnly) {
  const std::string text = said([] {
    const Log log(3);
    log.info("a");
    log.warning("b");
    log.warn_once("c");
    log.error("E-io: disk full");
  });
  EXPECT_EQ(text, "shale: [rank 3] E-io: disk full\n");
}

TEST(Log, TextIsNoFormatString) {
  EXPECT_EQ(said([] { Log().info("100% {} {0} %v %s"); }), "shale: 100% {} {0} %v %s\n");
}

TEST(Log, WarnsOnce) {
  const std::string text = said([] {
    const Log log;
    for (int i = 0; i < 5; ++i) log.warn_once("same");
    log.warn_once("other");
  });
  EXPECT_EQ(text, "shale: warning: same\nshale: warning: other\n");
}

TEST(Log, LinesOfThreadsDoNotMix) {
  const std::string text = said([] {
    const Log log;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&log] {
        for (int n = 0; n < 100; ++n) log.info("0123456789");
      });
    }
  });
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += "shale: 0123456789\n";
  EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace shale

#include "core/comm/rank_report.h"

#include <unistd.h>

#include <filesystem>
#include <new>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

namespace shale {
namespace {

RankReport through_a_pipe(const std::function<int()>& main, int code) {
  const Pipe pipe = make_pipe();
  EXPECT_EQ(run_reporting(pipe.write, main), code);
  const auto report = read_report(pipe.read);
  EXPECT_TRUE(report);
  return report.value_or(RankReport{});
}

TEST(RankReport, CarriesCodeTextAndWhetherItIsAFollowUp) {
  RankReport report = through_a_pipe([]() -> int { fail(Code::checkpoint, "bad \"file\""); }, 4);
  EXPECT_EQ(report.text, "bad \"file\"");
  EXPECT_EQ(report.code, Code::checkpoint);
  EXPECT_FALSE(report.secondary);
  EXPECT_GT(report.time, 0);
  report = through_a_pipe([]() -> int { throw Error(Code::dist, "peer").mark_secondary(); }, 5);
  EXPECT_TRUE(report.secondary);
}

TEST(RankReport, OtherExceptionsAreBugsExceptMemoryAndFiles) {
  EXPECT_EQ(through_a_pipe([]() -> int { throw std::bad_alloc(); }, 6).text, "out of memory");
  const std::string path(300, 'x');  // longer than a name may be
  const auto exists = [&]() -> int { return std::filesystem::exists(path); };
  EXPECT_EQ(through_a_pipe(exists, 6).text, path + ": File name too long");
  EXPECT_EQ(through_a_pipe([]() -> int { throw std::runtime_error("first\nsecond"); }, 70).text, "first");
  EXPECT_EQ(through_a_pipe([]() -> int { throw 3; }, 70).code, Code::internal);
}

TEST(RankReport, NothingIsSentByARankThatReturns) {
  const Pipe pipe = make_pipe();
  EXPECT_EQ(run_reporting(pipe.write, [] { return 9; }), 9);
  EXPECT_FALSE(read_report(pipe.read));
}

TEST(RankReport, LongTextsAreCut) {
  const std::string text(100000, 'x');
  const RankReport report = through_a_pipe([&]() -> int { fail(Code::io, text); }, 6);
  EXPECT_GT(report.text.size(), 1000U);
  EXPECT_LT(report.text.size(), 4096U);
}

TEST(RankReport, AnyBytesAreReadWithoutHarm) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const Pipe pipe = make_pipe();
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
    ASSERT_EQ(write(pipe.write.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    const auto report = read_report(pipe.read);
    EXPECT_LE(report ? report->text.size() : 0, bytes.size());
  }
}

}  // namespace
}  // namespace shale

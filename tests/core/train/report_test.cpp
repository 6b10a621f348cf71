#include "core/train/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/core/base/error_text.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/train/mini_run.h"

namespace shale {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

StepReport report_of(std::int64_t step) {
  StepReport r;
  r.step = step, r.loss = 2.34567, r.grad_norm = 0.123456, r.lr = 3.2e-4, r.tokens = 12'345, r.seconds = 0.01;
  return r;
}

class ReporterTest : public testing::Test {
 protected:
  ReporterTest() {
    config.metrics.log_freq = 10;
    run = std::make_unique<MiniRun>(config);
  }

  // What steps first..last print, into a file as a pipe would take it.
  std::vector<std::string> printed(int first, int last) {
    testing::internal::CaptureStdout();
    {
      Reporter reporter(**run, folder.path());
      for (int step = first; step <= last; ++step) reporter.step(**run, report_of(step));
    }
    return split(testing::internal::GetCapturedStdout(), '\n');
  }

  std::vector<json> metrics() const {
    std::vector<json> out;
    for (auto& line : split(test::read_file(folder / "metrics.jsonl"), '\n'))
      if (!line.empty()) out.push_back(json::parse(line));
    return out;
  }

  void write_metrics(const std::string& text) const { test::write_file(folder / "metrics.jsonl", text); }

  test::TempFolder folder;
  Config config;
  std::unique_ptr<MiniRun> run;
};

TEST_F(ReporterTest, PrintsTheFirstTheLastAndEveryTenthStep) {
  auto lines = printed(1, 25);
  ASSERT_EQ(lines.size(), 5u);  // and what is behind the last line feed
  EXPECT_EQ(lines.back(), "");
  const char* steps[] = {"step 1/25  ", "step 10/25  ", "step 20/25  ", "step 25/25  "};
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(lines[i], HasSubstr(steps[i]));
    EXPECT_THAT(lines[i],
                MatchesRegex("step .*/25  loss 2\\.3457  grad_norm 0\\.1235  lr 3\\.200e-04  tokens/s 1,234,500"
                             "  mem [0-9.]+ [KMG]iB  eta [0-9.smh]+"));
    EXPECT_EQ(lines[i].find_first_of("\r\x1b"), std::string::npos) << "a pipe is no terminal";
  }
  EXPECT_THAT(lines[0], HasSubstr("eta 0.2s"));  // 24 steps of 10 ms
  EXPECT_THAT(lines[3], HasSubstr("eta 0s"));
}

TEST_F(ReporterTest, SaysWhenAStepWasSkippedOrTheRunWasAskedToStop) {
  auto skipped = report_of(1), stopped = report_of(2);
  skipped.skipped = true, skipped.loss = std::numeric_limits<double>::quiet_NaN();
  stopped.stop_signal = 15;
  testing::internal::CaptureStdout();
  Reporter reporter(**run, folder.path());
  reporter.step(**run, skipped);
  reporter.step(**run, stopped);
  const auto text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("(skipped: not finite)"));
  EXPECT_THAT(text, HasSubstr("loss nan"));
  EXPECT_THAT(text, HasSubstr("step 2/25"));  // due although it is no tenth
  ASSERT_EQ(metrics().size(), 2u);
  EXPECT_TRUE(metrics()[0]["loss"].is_null());  // JSON has no word for it
  EXPECT_EQ(metrics()[0]["skipped"], true);
}

TEST_F(ReporterTest, MetricsHoldEveryStepInFullPrecision) {
  printed(1, 3);
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["loss"].get<double>(), 2.34567);
    EXPECT_EQ(lines[i]["grad_norm"].get<double>(), 0.123456);
    EXPECT_EQ(lines[i]["lr"].get<double>(), 3.2e-4);
    EXPECT_EQ(lines[i]["tokens"], 12'345);
    EXPECT_EQ(lines[i]["skipped"], false);
    EXPECT_EQ(lines[i]["loss_scale"], 1);
    for (auto key : {"seconds", "peak_rss_bytes", "peak_tensor_bytes", "gathers", "reductions", "collectives",
                     "sent_bytes", "comm_wait_seconds"})
      EXPECT_TRUE(lines[i][key].is_number()) << key;
  }
}

// Bitwise comparison of two runs reads these.
TEST_F(ReporterTest, LossesReadBackToTheSameBits) {
  testing::internal::CaptureStdout();
  std::vector<double> losses;
  {
    Reporter reporter(**run, folder.path());
    for (int i = 1; i <= 200; ++i) {
      auto r = report_of(i);
      r.loss = std::ldexp(1.0 / 3 + i, i % 90 - 45);
      losses.push_back(r.loss);
      reporter.step(**run, r);
    }
  }
  testing::internal::GetCapturedStdout();
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(lines[i]["loss"].get<double>(), losses[i]);
}

TEST_F(ReporterTest, AResumedRunContinuesItsFile) {
  printed(1, 8);
  (*run)->progress.step = 5;  // the snapshot it goes on from
  printed(6, 7);
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 7u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  EXPECT_THAT(printed(6, 6), testing::Contains(HasSubstr("step 6/25")));  // the first one after a resume
}

// A run that was killed may leave half a line; the folder may hold anything.
TEST_F(ReporterTest, LinesThatCannotBeReadAreDropped) {
  write_metrics(R"({"step": 1, "loss": 1}
not json
{"step": "two"}
{"step": null}
[1, 2]
{"validation_loss": 3, "step": 2}

{"step": 3, "lo)");
  (*run)->progress.step = 2;
  printed(3, 3);
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["loss"], 1);
  EXPECT_EQ(lines[1]["validation_loss"], 3);
  EXPECT_EQ(lines[2]["step"], 3);
}

TEST_F(ReporterTest, ValidationIsALineOfItsOwn) {
  testing::internal::CaptureStdout();
  Reporter reporter(**run, folder.path());
  (*run)->progress.step = 20;
  reporter.validation(**run, 1.5);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 20/25  validation loss 1.5000\n");
  EXPECT_EQ(metrics()[0], (json{{"step", 20}, {"validation_loss", 1.5}}));
}

TEST_F(ReporterTest, TheSpeedLeavesOutTheFirstStep) {
  testing::internal::CaptureStdout();
  Reporter reporter(**run, folder.path());
  EXPECT_EQ(reporter.tokens_per_second(), 0);
  auto slow = report_of(1);
  slow.seconds = 100;
  reporter.step(**run, slow);
  EXPECT_EQ(reporter.tokens_per_second(), 0);
  reporter.step(**run, report_of(2));
  EXPECT_DOUBLE_EQ(reporter.tokens_per_second(), 1'234'500);
  testing::internal::GetCapturedStdout();
}

TEST_F(ReporterTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(error_text(Code::io, [&] { Reporter(**run, folder / "gone"); }), HasSubstr("gone/metrics.jsonl"));
}

// Everything a terminal was sent while `act` ran.
std::string on_terminal(const std::function<void()>& act) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return "";
  const int slave = open(ptsname(terminal), O_RDWR | O_NOCTTY), saved = dup(STDOUT_FILENO);
  dup2(slave, STDOUT_FILENO);
  act();
  dup2(saved, STDOUT_FILENO);
  close(saved);
  fcntl(terminal, F_SETFL, O_NONBLOCK);
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = read(terminal, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(n));
  close(slave), close(terminal);
  return text;
}

TEST_F(ReporterTest, OnATerminalTheStepsBetweenMoveOneLine) {
  const auto text = on_terminal([&] {
    Reporter reporter(**run, folder.path());
    for (int step = 1; step <= 4; ++step) reporter.step(**run, report_of(step));
    reporter.note("a note");
  });
  if (text.empty()) GTEST_SKIP() << "no terminals here";
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 3u) << text;
  EXPECT_THAT(lines[0], HasSubstr("\rstep 1/25"));
  for (auto part : {"\rstep 2/25", "\rstep 3/25", "\rstep 4/25", "\ra note"}) EXPECT_THAT(lines[1], HasSubstr(part));
}

}  // namespace
}  // namespace shale

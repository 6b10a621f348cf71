// What a run tells: the console lines of rank 0 and metrics.jsonl in the run folder.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "core/train/run.h"
#include "core/train/step.h"

namespace shale {

class Reporter {
 public:
  // Appends to <folder>/metrics.jsonl on rank 0; lines of steps after run.progress.step are dropped first, so that a
  // resumed run continues the file.
  Reporter(const Run&, const std::string& folder);

  // Every step: a line of metrics.jsonl; every log_freq steps, and on the first and last, a line on the console. On a
  // terminal the steps between move one progress line.
  void step(const Run&, const StepReport&);
  void validation(const Run&, double loss);
  void snapshot(std::int64_t step, bool written, double blocked);  // blocked: seconds that the steps waited
  void note(const std::string& text);                              // a line of its own on the console
  double tokens_per_second() const;                                // since the start, without the first step

 private:
  std::string console_line(const Run&, const StepReport&) const;
  void write_metrics(const Run&, const StepReport&);
  void append(const std::string& line);  // to metrics.jsonl

  bool prints_ = false, terminal_ = false;
  std::int64_t first_step_ = 0, log_freq_ = 1;
  double seconds_ = 0;  // of the steps after the first
  std::int64_t tokens_ = 0;
  std::int64_t logged_tokens_ = 0;
  double logged_seconds_ = 0;
  std::string path_;  // of metrics.jsonl
  std::ofstream metrics_;
};

std::uint64_t peak_rss();  // bytes, of this process
double cpu_seconds();      // user and system, of this process so far

}  // namespace shale

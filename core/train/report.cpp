#include "core/train/report.h"

#include <sys/resource.h>
#include <unistd.h>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/cpu_pool.h"
#include "core/train/run_folder.h"

namespace shale {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string with_commas(double value) {
  auto digits = format("%.0f", value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, ",");
  return digits;
}

bool tells_of(const std::string& line, std::int64_t last_step) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto step = json.is_object() ? json.find("step") : json.end();
  return step != json.end() && step->is_number_integer() && step->get<std::int64_t>() <= last_step;
}

// Lines up to and including `step`, so that a resumed run does not tell a step twice. The old file stays until the new
// one is written.
void keep_until(const std::string& path, std::int64_t step) {
  std::ifstream in(path);
  if (!in) return;
  std::string line, kept;
  while (std::getline(in, line))
    if (tells_of(line, step)) kept += line + "\n";
  in.close();
  write_whole(path, kept);
}

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

Reporter::Reporter(const Run& run, const std::string& folder) {
  prints_ = run.around.world.rank() == 0;
  if (!prints_) return;
  terminal_ = isatty(STDOUT_FILENO) != 0;
  log_freq_ = run.config().metrics.log_freq;
  first_step_ = run.progress.step + 1;
  path_ = folder + "/metrics.jsonl";
  keep_until(path_, run.progress.step);
  metrics_.open(path_, std::ios::app);
  if (!metrics_) fail(Code::io, path_, ": cannot be written; check job.dump_folder");
}

std::string Reporter::console_line(const Run& run, const StepReport& r) const {
  const double tokens = static_cast<double>(tokens_ - logged_tokens_), seconds = seconds_ - logged_seconds_;
  const double rate = seconds > 0 ? tokens / seconds : static_cast<double>(r.tokens) / r.seconds;
  const double per_step = r.step > first_step_ ? seconds_ / static_cast<double>(r.step - first_step_) : r.seconds;
  const double left = per_step * static_cast<double>(run.total_steps - r.step);
  std::string line =
      str("step ", r.step, "/", run.total_steps, "  loss ", format("%.4f", r.loss), "  grad_norm ",
          format("%.4f", r.grad_norm), "  lr ", format("%.3e", r.lr), "  tokens/s ", with_commas(rate), "  mem ",
          human_bytes(static_cast<double>(peak_rss())), "  eta ", left > 0 ? human_seconds(left) : "0s");
  if (r.skipped) line += "  (skipped: not finite)";
  return line;
}

void Reporter::write_metrics(const Run& run, const StepReport& r) {
  const auto traffic = run.engine->traffic();
  const auto counts = run.engine->counts();
  std::int64_t sent = 0, calls = 0;
  nlohmann::ordered_json by_kind = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kOps; ++i) {
    const auto& op = traffic.ops[i];
    sent += op.bytes, calls += op.calls;
    if (op.calls > 0) by_kind[op_name(static_cast<Op>(i))] = {{"calls", op.calls}, {"bytes", op.bytes}};
  }
  nlohmann::ordered_json by_purpose = nlohmann::ordered_json::object();
  for (auto& [purpose, part] : run.engine->traffic_by_purpose())
    for (auto& op : part.ops) by_purpose[purpose] = by_purpose.value(purpose, std::int64_t{0}) + op.bytes;
  const nlohmann::ordered_json line{{"step", r.step},
                                    {"loss", r.loss},
                                    {"grad_norm", r.grad_norm},
                                    {"lr", r.lr},
                                    {"tokens", r.tokens},
                                    {"seconds", r.seconds},
                                    {"skipped", r.skipped},
                                    {"peak_rss_bytes", peak_rss()},
                                    {"peak_tensor_bytes", run.around.device.peak_allocated()},
                                    {"gathers", counts.gathers},
                                    {"reductions", counts.reductions},
                                    {"collectives", calls},
                                    {"sent_bytes", sent},
                                    {"traffic", by_kind},
                                    {"sent_bytes_by_purpose", by_purpose},
                                    {"comm_wait_seconds", traffic.waited},
                                    {"loss_scale", run.scaler->scale()},
                                    {"cpu_seconds", cpu_seconds()},
                                    {"large_allocations", cpu_pool_counts().large_allocations},
                                    {"forecast_bytes", run.forecast.total()},
                                    {"forecast_sent_bytes", run.forecast.sent()}};
  // A number that is not finite is written as null: JSON has no other word.
  append(line.dump());
}

void Reporter::append(const std::string& line) {
  metrics_ << line << std::endl;
  if (!metrics_) fail(Code::io, path_, ": cannot be written; is the disk full?");
}

void Reporter::step(const Run& run, const StepReport& r) {
  if (!prints_) return;
  if (r.step > first_step_) seconds_ += r.seconds, tokens_ += r.tokens;
  write_metrics(run, r);
  const bool due = r.step == first_step_ || r.step == run.total_steps || r.step % log_freq_ == 0 || r.stop_signal != 0;
  if (!due && !terminal_) return;
  const auto line = console_line(run, r);
  std::printf(due ? "%s%s%s\n" : "%s%s%s", terminal_ ? "\r" : "", line.c_str(), terminal_ ? "\x1b[K" : "");
  std::fflush(stdout);
  if (due) logged_tokens_ = tokens_, logged_seconds_ = seconds_;
}

void Reporter::validation(const Run& run, double loss) {
  if (!prints_) return;
  append(nlohmann::ordered_json{{"step", run.progress.step}, {"validation_loss", loss}}.dump());
  note(str("step ", run.progress.step, "/", run.total_steps, "  validation loss ", format("%.4f", loss)));
}

void Reporter::snapshot(std::int64_t step, bool written, double blocked) {
  if (!prints_) return;
  append(nlohmann::ordered_json{{"step", step}, {"snapshot", written}, {"blocked_seconds", blocked}}.dump());
}

void Reporter::note(const std::string& text) {
  if (!prints_) return;
  std::printf("%s%s%s\n", terminal_ ? "\r" : "", text.c_str(), terminal_ ? "\x1b[K" : "");
  std::fflush(stdout);
}

double Reporter::tokens_per_second() const { return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0; }

}  // namespace shale

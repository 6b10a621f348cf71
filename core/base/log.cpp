#include "core/base/log.h"

#include <mutex>
#include <set>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace shale {

// spdlog's sink locks and flushes; the logger is ours alone and in no registry, so there is no global state.
struct Log::Sink {
  spdlog::logger logger{"shale", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  Level least = Level::info;
  std::mutex mutex;
  std::set<std::string> said;
};

namespace {

std::string prefix(Log::Level level, int rank) {
  std::string out = "shale: ";
  if (rank != 0) out += "[rank " + std::to_string(rank) + "] ";
  if (level == Log::Level::debug) out += "debug: ";
  if (level == Log::Level::warning) out += "warning: ";
  return out;
}

}  // namespace

Log::Log(int rank, Level least) : rank_(rank), sink_(std::make_unique<Sink>()) {
  sink_->least = least;
  sink_->logger.set_pattern("%v");
  sink_->logger.set_level(spdlog::level::trace);
  sink_->logger.flush_on(spdlog::level::trace);
}

Log::~Log() = default;

void Log::write(Level level, const std::string& text) const {
  if (level < sink_->least || (rank_ != 0 && level != Level::error)) return;
  const auto to = level == Level::error ? spdlog::level::err : spdlog::level::info;
  sink_->logger.log(to, spdlog::string_view_t(prefix(level, rank_) + text));
}

void Log::warn_once(const std::string& text) const {
  {
    const std::lock_guard<std::mutex> lock(sink_->mutex);
    if (!sink_->said.insert(text).second) return;
  }
  warning(text);
}

}  // namespace shale

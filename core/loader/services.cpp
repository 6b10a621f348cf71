#include "core/loader/services.h"

#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/loader/status.h"

namespace shale {

Services::Services(ServicesSpec spec) : spec_(std::move(spec)), hooks_(spec_.run ? spec_.run->rank : 0) {
  log_ = {sizeof log_, 0, this, &Services::write, &Services::metric};
}

Services::~Services() {
  std::error_code ignored;
  if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
}

const void* Services::find(const char* id) noexcept {
  try {
    const std::string name = id ? id : "";
    if (name == SHALE_LOG_SERVICE) return &log_;
    if (name == SHALE_FILES_SERVICE && spec_.kind == "checkpoint") return files_.table();
    if (name == SHALE_RUN_SERVICE && spec_.run) return run_table();
    if (spec_.kind == "sharding") return hooks_.find(name);
  } catch (const std::exception& e) {
    if (spec_.log) spec_.log->error(str("[", spec_.kind, "] ", spec_.id, ": ", id, ": ", e.what()));
  }
  return nullptr;
}

const shale_run* Services::run_table() {
  const std::lock_guard lock(making_);
  if (!scratch_.empty()) return &run_;
  const RunContext& r = *spec_.run;
  std::string folder = str(r.scratch_root, "/shale-", spec_.kind, "-rank", r.rank, "-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    fail(Code::io, "no scratch folder can be made in ", r.scratch_root, ": set TMPDIR to a folder that can be written");
  scratch_ = folder;
  run_ = {.struct_size = sizeof run_,
          .rank = static_cast<std::uint32_t>(r.rank),
          .world = static_cast<std::uint32_t>(r.world),
          .local_rank = static_cast<std::uint32_t>(r.local_rank),
          .seed = r.seed,
          .scratch_dir = to_c(scratch_),
          .wait_limit = r.wait_limit,
          .ctx = this,
          .ending = [](void* ctx) -> std::uint32_t {
            const auto* flag = static_cast<Services*>(ctx)->spec_.run->ending;
            return flag != nullptr && flag->load();
          },
          .parallel = &Services::parallel};
  return &run_;
}

void Services::write(void* ctx, std::uint32_t level, shale_str text) {
  const auto& me = static_cast<Services*>(ctx)->spec_;
  if (me.log == nullptr) return;
  StatusFree{}(guarded([&]() -> shale_status* {
    const auto at = level <= 1   ? Log::Level::debug
                    : level == 2 ? Log::Level::info
                    : level == 3 ? Log::Level::warning
                                 : Log::Level::error;
    me.log->write(at, str("[", me.kind, "] ", me.id, ": ", one_line(to_text(text))));
    return nullptr;
  }));
}

void Services::metric(void* ctx, const char* name, const char* unit, double value) {
  const auto* run = static_cast<Services*>(ctx)->spec_.run;
  if (run == nullptr || !run->metric) return;
  StatusFree{}(guarded([&]() -> shale_status* {
    run->metric(to_text(name), to_text(unit), value);
    return nullptr;
  }));
}

void Services::parallel(void* ctx, std::uint32_t n, void (*job)(void*, std::uint32_t), void* arg) {
  std::atomic<std::uint32_t> next{0};
  const auto work = [&] {
    for (std::uint32_t k = next++; k < n; k = next++) {
      try {
        job(arg, k);
      } catch (...) {
        const auto& me = static_cast<Services*>(ctx)->spec_;
        if (me.log)
          me.log->error(str("[", me.kind, "] ", me.id, ": a parallel job threw a C++ exception: a bug of it"));
      }
    }
  };
  StatusFree{}(guarded([&]() -> shale_status* {
    const std::uint32_t helpers = std::min(n, std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::jthread> threads;
    try {
      for (std::uint32_t k = 1; k < helpers; ++k) threads.emplace_back(work);
    } catch (const std::system_error&) {  // fewer threads then
    }
    work();
    return nullptr;
  }));
}

}  // namespace shale

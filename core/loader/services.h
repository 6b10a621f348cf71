// The services a plugin instance gets: log, run, files and those of hooks.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "core/loader/abi.h"
#include "core/loader/files_service.h"
#include "core/loader/hook_services.h"
#include "core/loader/plugins.h"

namespace shale {

struct ServicesSpec {
  std::string kind, id;  // of the plugin, for messages
  const Log* log = nullptr;
  const RunContext* run = nullptr;  // null: no run service
};

// The tables point into it: not movable. find: any thread.
class Services {
 public:
  explicit Services(ServicesSpec);
  ~Services();  // removes the scratch folder
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  const void* find(const char* id) noexcept;  // null: not here
  FilesService& files() { return files_; }
  HookServices& hooks() { return hooks_; }

 private:
  const shale_run* run_table();  // makes the scratch folder when first asked
  static void write(void* ctx, std::uint32_t level, shale_str text);
  static void metric(void* ctx, const char* name, const char* unit, double value);
  static void parallel(void* ctx, std::uint32_t n, void (*job)(void*, std::uint32_t), void* arg);

  ServicesSpec spec_;
  FilesService files_;
  HookServices hooks_;
  shale_log log_{};
  shale_run run_{};
  std::mutex making_;
  std::string scratch_;
};

}  // namespace shale

// The four plugins of a run, found, opened, checked and made. What cli/ and train/ use of this room; no SDK header is
// needed to include it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/checkpoint/format.h"
#include "core/comm/group.h"
#include "core/config/config.h"
#include "core/loader/find_plugin.h"
#include "core/offload/policy.h"
#include "core/precision/policy.h"
#include "core/sharding/strategy.h"

namespace shale {

// What a run lends to plugins (shale.run/1). The referenced things outlive Plugins.
struct RunContext {
  int rank = 0, world = 1, local_rank = 0;
  std::uint64_t seed = 0;
  std::string scratch_root = "/tmp";          // an empty folder per rank and plugin is made in here when asked for
  double wait_limit = 100;                    // seconds
  const std::atomic<bool>* ending = nullptr;  // true: plugins should give up
  std::function<void(const std::string& name, const std::string& unit, double value)> metric;  // any thread
};

struct OptionText {  // an option as resolved, in TOML spelling
  std::string key, value;
  bool given = false;  // false: the default
};

struct LoadedPlugin {
  std::string kind, id, version, summary;
  std::string path, hash;  // absolute; hash_file of it
  std::vector<OptionText> options;
};

// The loaded four. Destroying it destroys the instances; the files stay loaded until the process ends. One thread at a
// time, except CheckpointFormat::write, read and probe (io threads).
class Plugins {
 public:
  virtual ~Plugins() = default;
  virtual ShardingStrategy& sharding() = 0;
  virtual PrecisionPolicy& precision() = 0;
  virtual OffloadPolicy& offload() = 0;
  virtual CheckpointFormat& checkpoint() = 0;
  virtual const std::vector<LoadedPlugin>& loaded() const = 0;  // in the order of the four above
  std::string describe() const;  // JSON for the run folder and snapshots; of ranks that agree() only paths may differ
};

// Local: opens the four, checks their options and makes the instances. All that is wrong with the files and options of
// all four is in one Error{config}, each with file:line:col. run null: only planning, no run services.
std::unique_ptr<Plugins> load_plugins(const Config&, const PluginPaths&, const Log&, const RunContext* run = nullptr);

// One more plugin of kind "checkpoint", by name or absolute path, with default options: to read a folder that was
// written in another format than the run's.
std::unique_ptr<CheckpointFormat> load_format(const std::string& name, const PluginPaths&, const Log&);

// Collective: all ranks compare id, version and file hash of the four and the hash of the configuration. Where they
// differ every rank throws the same Error{config} that names ranks, things and values.
void agree(Group& everyone, const Config&, const Plugins&);

// Collective: load_plugins, then agree. A failure on some ranks is the same one Error on every rank.
std::unique_ptr<Plugins> load_plugins_together(Group& everyone, const Config&, const PluginPaths&, const Log&,
                                               const RunContext* run);

}  // namespace shale

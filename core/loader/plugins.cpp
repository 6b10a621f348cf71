#include "core/loader/plugins.h"

#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/loader/adapters.h"
#include "core/loader/descriptor.h"
#include "core/loader/plugin_library.h"

namespace shale {
namespace {

// What a load has at hand.
struct Loading {
  const PluginPaths& paths;
  const Log& log;
  const RunContext* run = nullptr;
  std::string folder;  // where relative paths in options start
  ConfigErrors errors;
  std::map<std::string, std::shared_ptr<const PluginLibrary>> libraries;  // by canonical path
};

std::string folder_of(const std::string& file) {
  return std::filesystem::absolute(file.empty() ? "." : file).parent_path().string();
}

// "hybrid" also names org.team.hybrid.
bool answers_to(const std::string& id, const std::string& name) { return id == name || id.ends_with("." + name); }

std::shared_ptr<const PluginLibrary> open(Loading& load, const PluginChoice& choice) {
  const std::string path = find_plugin(choice.kind, choice.plugin, load.paths);
  auto& library = load.libraries[path];
  if (!library) library = std::make_shared<const PluginLibrary>(open_plugin(path));
  const Descriptor& d = library->descriptor(choice.kind);
  if (choice.plugin.find('/') == std::string::npos && !answers_to(d.id, choice.plugin))
    fail(Code::config, path, ": calls itself \"", d.id, "\", not \"", choice.plugin,
         "\": rename the file after its id, or name it by its path");
  try {
    check_served(d);
  } catch (const Error& e) {
    fail(e.code(), path, ": ", e.what());
  }
  for (const std::string& other : passed_over(choice.kind, choice.plugin, load.paths))
    load.log.info(str("[", choice.kind, "] plugin ", choice.plugin, " is ", path, "; passed over: ", other));
  return library;
}

// An instance that is not created yet, or null when errors were noted.
OwnedInstance prepare(Loading& load, const PluginChoice& choice) {
  try {
    const auto library = open(load, choice);
    auto options =
        std::make_unique<CheckedOptions>(library->descriptor(choice.kind).options, choice, load.folder, load.errors);
    return std::make_unique<PluginInstance>(InstanceSpec{library, choice, std::move(options), &load.log, load.run});
  } catch (const Error& e) {
    if (e.code() != Code::config && e.code() != Code::io) throw;
    load.errors.add(choice.origin, str("[", choice.kind, "] plugin: ", e.what()));
    return nullptr;
  }
}

// Two files with one id would mix their states in snapshots.
void check_ids(Loading& load, const std::vector<OwnedInstance>& instances) {
  for (std::size_t b = 0; b < instances.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) {
      if (!instances[a] || !instances[b]) continue;
      const LoadedPlugin x = instances[a]->facts(), y = instances[b]->facts();
      if (x.id == y.id && x.hash != y.hash)
        load.errors.add({instances[b]->choice_origin()},
                        str("[", y.kind, "] plugin: ", y.path, " and the ", x.kind, " plugin ", x.path,
                            " are different files that both call themselves \"", x.id, "\": use one of them"));
    }
}

class LoadedPlugins : public Plugins {
 public:
  explicit LoadedPlugins(std::vector<OwnedInstance> made) {
    for (const auto& instance : made) facts_.push_back(instance->facts());
    const auto dtypes = std::make_shared<LatestDtypes>();
    sharding_ = make_sharding(std::move(made[0]), dtypes);
    precision_ = make_precision(std::move(made[1]), dtypes);
    offload_ = make_offload(std::move(made[2]), dtypes);
    checkpoint_ = make_checkpoint(std::move(made[3]));
  }
  ShardingStrategy& sharding() override { return *sharding_; }
  PrecisionPolicy& precision() override { return *precision_; }
  OffloadPolicy& offload() override { return *offload_; }
  CheckpointFormat& checkpoint() override { return *checkpoint_; }
  const std::vector<LoadedPlugin>& loaded() const override { return facts_; }

 private:
  std::vector<LoadedPlugin> facts_;
  std::unique_ptr<ShardingStrategy> sharding_;
  std::unique_ptr<PrecisionPolicy> precision_;
  std::unique_ptr<OffloadPolicy> offload_;
  std::unique_ptr<CheckpointFormat> checkpoint_;
};

}  // namespace

std::unique_ptr<Plugins> load_plugins(const Config& config, const PluginPaths& paths, const Log& log,
                                      const RunContext* run) {
  Loading load{paths, log, run, folder_of(config.file), {}, {}};
  std::vector<OwnedInstance> instances;
  for (const PluginChoice* choice : {&config.sharding, &config.precision, &config.offload, &config.format})
    instances.push_back(prepare(load, *choice));
  check_ids(load, instances);
  load.errors.raise();
  for (const auto& instance : instances) instance->create(load.errors);
  load.errors.raise();
  return std::make_unique<LoadedPlugins>(std::move(instances));
}

std::unique_ptr<CheckpointFormat> load_format(const std::string& name, const PluginPaths& paths, const Log& log) {
  Loading load{paths, log, nullptr, folder_of(""), {}, {}};
  auto instance = prepare(load, {"checkpoint", name, {"format \"" + name + "\""}, {}});
  load.errors.raise();
  instance->create(load.errors);
  load.errors.raise();
  return make_checkpoint(std::move(instance));
}

std::string Plugins::describe() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const LoadedPlugin& p : loaded()) {
    nlohmann::ordered_json options = nlohmann::ordered_json::object();
    for (const OptionText& o : p.options) options[o.key] = o.value;
    out.push_back({{"kind", p.kind},
                   {"id", p.id},
                   {"version", p.version},
                   {"path", p.path},
                   {"hash", p.hash},
                   {"options", options}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // a path may be any bytes
}

}  // namespace shale

#include "core/loader/find_plugin.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/loader/status.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

std::string canonical(const std::string& path) {
  std::error_code problem;
  const fs::path result = fs::canonical(path, problem);
  if (problem) fail(Code::config, path, ": ", problem.message(), ": give the path of a plugin that is there");
  return result.string();
}

// "full_shard" for sharding_full_shard.so, of the folders that can be read.
std::vector<std::string> names_there(const std::string& kind, const PluginPaths& paths) {
  std::vector<std::string> names;
  for (const std::string& folder : paths.folders) {
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(folder, problem)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(kind + "_") && file.ends_with(".so") && file.size() > kind.size() + 4)
        names.push_back(file.substr(kind.size() + 1, file.size() - kind.size() - 4));
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// In search order, each once.
std::vector<std::string> files_of(const std::string& kind, const std::string& name, const PluginPaths& paths) {
  std::vector<std::string> files;
  for (const std::string& folder : paths.folders) {
    const fs::path file = fs::path(folder) / str(kind, "_", name, ".so");
    std::error_code problem;
    if (!fs::exists(file, problem)) continue;
    const std::string real = canonical(file.string());
    if (std::find(files.begin(), files.end(), real) == files.end()) files.push_back(real);
  }
  return files;
}

[[noreturn]] void not_found(const std::string& kind, const std::string& name, const PluginPaths& paths) {
  const auto names = names_there(kind, paths);
  const std::string near = nearest(name, names);
  fail(Code::config, "there is no ", kind, " plugin \"", name, "\": no ", kind, "_", name, ".so in ",
       paths.folders.empty() ? "any folder, as none is given" : join(paths.folders, ", "),
       near.empty() ? std::string() : "; did you mean \"" + near + "\"?",
       names.empty() ? str("; no ", kind, " plugin is there at all, so shale may not be installed completely")
                     : "; there are: " + join(names, ", "),
       ". Add its folder to SHALE_PLUGIN_PATH or give the path of the file");
}

}  // namespace

PluginPaths plugin_paths(const std::string& binary_folder, const std::vector<std::string>& more) {
  PluginPaths paths;
  const auto add = [&](const fs::path& folder) {
    std::error_code problem;
    const std::string real = fs::weakly_canonical(folder, problem).string();
    auto& known = paths.folders;
    if (std::find(known.begin(), known.end(), real) == known.end()) known.push_back(real);
  };
  for (const char* folder : {"../lib/shale/plugins", "plugins"}) {
    std::error_code problem;
    if (const fs::path at = fs::path(binary_folder) / folder; fs::is_directory(at, problem)) add(at);
  }
  for (const std::string& folder : more) {
    if (!fs::path(folder).is_absolute())
      fail(Code::config, "SHALE_PLUGIN_PATH holds the relative folder \"", folder,
           "\": give absolute ones, plugins are ", "never searched for in the working directory");
    add(folder);  // also one that is not there, so that messages name it
  }
  return paths;
}

std::string find_plugin(const std::string& kind, const std::string& name, const PluginPaths& paths) {
  if (name.find('/') != std::string::npos) {
    if (name[0] != '/')
      fail(Code::config, "\"", name,
           "\" is a relative path: give an absolute one, plugins are never searched for in the ", "working directory");
    return canonical(name);
  }
  if (name.empty() || name.size() > 128 || name.find('\0') != std::string::npos)
    fail(Code::config, "\"", one_line(name.substr(0, 128)),
         "\" is no name of a plugin: give a name such as \"full_shard\" or a path");
  const auto files = files_of(kind, name, paths);
  if (files.empty()) not_found(kind, name, paths);
  return files.front();
}

std::vector<std::string> passed_over(const std::string& kind, const std::string& name, const PluginPaths& paths) {
  if (name.find('/') != std::string::npos) return {};
  auto files = files_of(kind, name, paths);
  if (!files.empty()) files.erase(files.begin());
  return files;
}

}  // namespace shale

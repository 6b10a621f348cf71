#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "core/base/error.h"
#include "core/cli/commands.h"
#include "core/config/config.h"
#include "core/loader/inspect.h"
#include "core/loader/plugins.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

void print_options(const DescriptorFacts& d) {
  if (d.options.empty()) std::printf("  no options\n");
  for (auto& o : d.options) {
    std::printf("  [%s.options] %s = %s   # %s%s%s\n", d.kind.c_str(), o.key.c_str(),
                o.required ? "(must be given)" : o.fallback.c_str(), o.type.c_str(), o.range.empty() ? "" : ", ",
                o.range.c_str());
    std::printf("      %s\n", o.help.c_str());
  }
}

void print_file(const PluginFile& f) {
  std::printf("%s\n  hash %s, ABI %s\n", f.path.c_str(), f.hash.c_str(), f.abi.c_str());
  if (!f.problem.empty()) std::printf("  cannot be used: %s\n", f.problem.c_str());
  for (auto& d : f.descriptors) {
    std::printf("%s %s %s: %s\n", d.kind.c_str(), d.id.c_str(), d.version.c_str(), d.summary.c_str());
    for (auto& i : d.interfaces) std::printf("  interface %s\n", i.c_str());
    print_options(d);
  }
}

// A path, or a name of any kind.
std::string find_any(const std::string& name) {
  if (name.find('/') != std::string::npos) return fs::absolute(name).lexically_normal().string();
  std::string first;
  for (auto kind : {"sharding", "precision", "offload", "checkpoint"}) {
    try {
      return find_plugin(kind, name, installed_plugins());
    } catch (const Error& e) {
      if (first.empty()) first = e.what();
    }
  }
  fail(Code::config, "no plugin of any kind is called ", name, "; see shale plugin list (", first, ")");
}

}  // namespace

std::string binary_folder() { return fs::read_symlink("/proc/self/exe").parent_path().string(); }

PluginPaths installed_plugins() { return plugin_paths(binary_folder(), read_plugin_path()); }

int plugin_list_command(bool json) {
  const auto files = list_plugins(installed_plugins());
  if (json) {
    std::printf("[");
    for (std::size_t i = 0; i < files.size(); ++i) std::printf("%s%s", i ? ",\n" : "", to_json(files[i]).c_str());
    std::printf("]\n");
    return 0;
  }
  for (auto& f : files) {
    for (auto& d : f.descriptors)
      std::printf("%-11s %-20s %-8s %s%s\n", d.kind.c_str(), d.id.c_str(), d.version.c_str(), d.summary.c_str(),
                  f.shadowed ? "  (shadowed by an earlier file)" : "");
    if (!f.problem.empty()) std::printf("%s: cannot be used: %s\n", f.path.c_str(), f.problem.c_str());
  }
  return 0;
}

int plugin_info_command(const std::string& name, bool json) {
  const auto file = plugin_info(find_any(name));
  if (json)
    std::printf("%s\n", to_json(file).c_str());
  else
    print_file(file);
  if (!file.problem.empty()) fail(Code::config, file.path, " cannot be used: ", file.problem);
  return 0;
}

}  // namespace shale

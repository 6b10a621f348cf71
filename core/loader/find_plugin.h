// From the name in a configuration to one absolute file.
#pragma once

#include <string>
#include <vector>

namespace shale {

// Folders that are searched, absolute, in order; the first file with the name wins. Never the working directory.
struct PluginPaths {
  std::vector<std::string> folders;
};

// binary_folder: where the running program lies. Its <binary_folder>/../lib/shale/plugins (installed) or
// <binary_folder>/plugins (build tree) come first, then `more` (Config::plugin_path): Error{config} for a relative one.
PluginPaths plugin_paths(const std::string& binary_folder, const std::vector<std::string>& more);

// "full_shard" of kind "sharding" -> ".../sharding_full_shard.so"; an absolute path is taken as given. The result is
// canonical. Error{config} with the places searched and the nearest name there is; the text has no file:line:col.
std::string find_plugin(const std::string& kind, const std::string& name, const PluginPaths&);

// Other files of that name in later folders: a run does not take them. Empty for a path.
std::vector<std::string> passed_over(const std::string& kind, const std::string& name, const PluginPaths&);

}  // namespace shale

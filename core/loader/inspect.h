// What a plugin file says about itself, for `shale plugin list` and `shale plugin info`. Files are opened in a child
// process with a time limit: one that crashes or hangs is reported, it does not take the tool down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/loader/find_plugin.h"

namespace shale {

struct OptionFacts {
  std::string key, type, fallback, range, unit, help;  // fallback "" and required: the user must give it
  bool required = false;
};

struct DescriptorFacts {  // one decision a file can make
  std::string kind, id, version, summary, vendor, license, url;
  std::vector<std::string> interfaces, needs, capabilities;
  std::vector<OptionFacts> options;
};

struct PluginFile {
  std::string path, hash;
  std::string problem;    // why it cannot be used here, as a run would say it; "" = usable
  bool shadowed = false;  // list only: an earlier file with the same name is the one a run takes
  std::string abi;        // "0.1 (runs from 0.1)"
  std::vector<DescriptorFacts> descriptors;
};

// Every *.so of the folders, in search order, by file name.
std::vector<PluginFile> list_plugins(const PluginPaths&);
// One file; never throws for what is wrong with it. limit: seconds the child may take.
PluginFile plugin_info(const std::string& path, double limit = 10);

std::string to_json(const PluginFile&);

}  // namespace shale

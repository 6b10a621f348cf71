// Where the built-in plugins of this build lie.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "host.h"

namespace shale {

inline std::string plugin_file(const std::string& name) { return SHALE_PLUGIN_DIR "/" + name + ".so"; }

inline std::vector<std::string> plugin_names() {
  std::vector<std::string> names;
  std::istringstream in(SHALE_PLUGIN_NAMES);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

}  // namespace shale

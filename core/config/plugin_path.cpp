#include "core/base/text.h"
#include "core/config/config.h"

namespace shale {

std::vector<std::string> read_plugin_path(const Environment& environment) {
  std::vector<std::string> folders = split(lookup(environment, "SHALE_PLUGIN_PATH"), ':');
  std::erase(folders, "");
  return folders;
}

std::vector<std::string> read_plugin_path() { return read_plugin_path(process_environment()); }

}  // namespace shale

#include "core/base/text.h"
#include "core/config/config.h"

namespace shale {

std::vector<std::string> read_plugin_path() {
  std::vector<std::string> folders;
  for (const std::string& folder : split(lookup(process_environment(), "SHALE_PLUGIN_PATH"), ':'))
    if (!folder.empty()) folders.push_back(folder);
  return folders;
}

}  // namespace shale

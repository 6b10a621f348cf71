// The sub-commands. Each returns the exit code and throws Error for what goes wrong; main prints it.
#pragma once

#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/loader/find_plugin.h"

namespace CLI {
class App;
}

namespace shale {

struct TrainArguments {
  std::string file;
  std::vector<Override> overrides;
  int nproc = 0;  // 0 = as the environment says
  bool print_config = false;
};
int train_command(const TrainArguments&);

struct GenerateArguments {
  std::string from;  // run.toml, a run folder, a snapshot or a Hugging Face folder
  std::string prompt = "\n", ids;
  std::int64_t tokens = 200, top_k = 40, seed = 0;
  double temperature = 0.8;
};
int generate_command(const GenerateArguments&);

int plugin_list_command(bool json);
int plugin_info_command(const std::string& name_or_path, bool json);
struct ConvertArguments {
  std::string from, to, format, dtype;  // dtype "" = as it is
  std::string assets;                   // "" = from
  bool weights_only = false;
};
int checkpoint_convert_command(const ConvertArguments&);
int checkpoint_inspect_command(const std::string& folder);
int checkpoint_verify_command(const std::string& folder);
int version_command();

// Where built-in plugins are, seen from the running program, then SHALE_PLUGIN_PATH.
PluginPaths installed_plugins();
std::string binary_folder();

}  // namespace shale

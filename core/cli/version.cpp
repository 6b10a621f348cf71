#include <cstdio>

#include <torch/headeronly/version.h>

#include "core/cli/commands.h"

namespace shale {

int version_command() {
  std::printf("shale %s\nplugin ABI %s\nLibTorch %s\n", SHALE_VERSION, SHALE_ABI_VERSION, TORCH_VERSION);
  return 0;
}

}  // namespace shale

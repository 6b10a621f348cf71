#include <stdexcept>

#include "shale/plugin.h"

extern "C" SHALE_EXPORT const shale_plugin* shale_plugin_entry_v1(const shale_host*) {
  throw std::runtime_error("thrown in the entry");
}

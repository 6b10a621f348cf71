// PluginFile as JSON: between the child process that opens a plugin and its parent, and for people's scripts.
#pragma once

#include <string>

#include "core/loader/inspect.h"

namespace shale {

// False when the text is not what to_json writes; then `out` is unchanged.
bool from_json(const std::string& text, PluginFile& out);

}  // namespace shale

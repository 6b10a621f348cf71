// A snapshot as text for a person: what `shale checkpoint inspect` prints.
#pragma once

#include <string>

#include "core/checkpoint/format.h"

namespace shale {

// Step, world, format, plugins, files, each item with dtype, shape and size or value, totals. Lines end with '\n'.
// Error{checkpoint} when the snapshot cannot be loaded.
std::string inspect_snapshot(const std::string& path, CheckpointFormat&);

}  // namespace shale

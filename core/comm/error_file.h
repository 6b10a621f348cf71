// The file in which torchrun's agent looks for the reason of a rank's failure.
#pragma once

#include <string>

#include "core/base/error.h"

namespace shale {

// Writes the error as torchrun reads it (message, extraInfo, timestamp) to `path`, TORCHELASTIC_ERROR_FILE; nothing if
// path is "". Never throws: the error itself matters more than its copy.
void write_error_file(const std::string& path, const Error&, int rank) noexcept;

}  // namespace shale

// Parts as .distcp files, and .metadata over them.
#pragma once

#include "shale/plugin.hpp"

namespace dcp {

void write(const shale::sdk::Plugin&, const shale_save&);
void finish(const shale::sdk::Plugin&, const shale_finish&);

}  // namespace dcp

// The group of a rank that is alone: no network, no c10d; results are there at once.
#pragma once

#include <memory>
#include <string>

#include "core/comm/group.h"

namespace shale {

std::unique_ptr<Group> make_local_group(const std::string& name);

}  // namespace shale

// A group of two whose other member is an echo: everything it would send is computed from what this rank sends. With it
// one device runs the engine's sharded paths, and the same numbers come out on every device. On a GPU the answers come
// late and from a stream of the group's own, as NCCL's do, so work that does not wait for them reads wrong numbers.
#pragma once

#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "core/comm/group.h"

namespace shale {

std::unique_ptr<Group> echo_group(at::Device, const std::string& name);

}  // namespace shale

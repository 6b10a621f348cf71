// The world of two and more ranks, which meet at c10d's TCPStore.
#pragma once

#include <memory>

#include "core/comm/world.h"

namespace shale {

std::unique_ptr<World> join_c10d_world(const Launch&);  // as World::join; launch.world > 1

}  // namespace shale

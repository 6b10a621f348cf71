// Brings tensors that are cut over ranks together, for formats that hold whole tensors only.
#pragma once

#include <vector>

#include "core/checkpoint/format.h"
#include "core/checkpoint/snapshot.h"

namespace shale {

// Collective. Each tensor goes to one rank: to rank 0 where the format has one writer, else to whoever has least so
// far, so that a rank holds about as much as it did. Returns this rank's whole tensors, in host memory.
std::vector<Piece> collect_whole(Group&, const FormatTraits&, const std::vector<Piece>&);

}  // namespace shale

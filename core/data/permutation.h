// A shuffled order of 0 .. n-1 without a list of it: a pure function of (seed, epoch, n). Private to this room.
#pragma once

#include <cstdint>

namespace shale {

// Where place `place` of the order points, 0 <= place < n. A bijection of 0 .. n-1 for every seed and epoch.
std::int64_t permuted(std::int64_t place, std::int64_t n, std::uint64_t seed, std::uint64_t epoch);

}  // namespace shale

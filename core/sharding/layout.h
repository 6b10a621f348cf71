// How the parameters of a unit lie in flats and what part of them a rank owns.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/description.h"

namespace shale {

// One contiguous vector of a unit: parameters of one set of dtypes, trainable or frozen, back to back in unit order.
struct FlatLayout {
  int unit = 0, index = 0;  // index: which flat of the unit
  bool frozen = false;
  std::vector<int> parameters;        // positions in the unit
  std::vector<std::int64_t> offsets;  // first element of each, in the flat
  std::int64_t numel = 0;
};

// A rank's contiguous range of a flat. Every rank of the shard group communicates `chunk` elements; the last ones own
// fewer, perhaps none.
struct ShardRange {
  std::int64_t chunk = 0, begin = 0, length = 0;
};

// chunk = ceil(numel / ways) rounded up to `align`; rank's range is [rank * chunk, ...) cut at numel.
ShardRange shard_range(std::int64_t numel, int ways, int rank, std::int64_t align);

// The part of a parameter inside a shard: `count` elements from `parameter_begin` of the parameter's row-major order,
// at `shard_begin` of the shard. count 0 = none.
struct Overlap {
  std::int64_t parameter_begin = 0, shard_begin = 0, count = 0;
};
Overlap overlap(const FlatLayout&, std::size_t parameter, std::int64_t parameter_numel, const ShardRange&);

}  // namespace shale

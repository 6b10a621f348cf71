#include "core/sharding/layout.h"

#include <algorithm>

#include "core/base/error.h"

namespace shale {

ShardRange shard_range(std::int64_t numel, int ways, int rank, std::int64_t align) {
  check(ways > 0 && rank >= 0 && rank < ways && align > 0 && numel >= 0, "shard_range: bad arguments");
  const std::int64_t even = (numel + ways - 1) / ways;
  ShardRange r;
  // A group of one has nothing to cut, so nothing is padded.
  r.chunk = ways == 1 ? numel : (even + align - 1) / align * align;
  r.begin = std::min(numel, r.chunk * rank);
  r.length = std::min(numel, r.begin + r.chunk) - r.begin;
  return r;
}

Overlap overlap(const FlatLayout& flat, std::size_t parameter, std::int64_t parameter_numel, const ShardRange& range) {
  const auto offset = flat.offsets[parameter];
  const auto from = std::max(offset, range.begin);
  const auto to = std::min(offset + parameter_numel, range.begin + range.length);
  if (from >= to) return {};
  return {from - offset, from - range.begin, to - from};
}

}  // namespace shale

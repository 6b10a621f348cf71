#include "core/comm/topology.h"

#include <numeric>

#include "core/base/error.h"

namespace shale {

Partition self_partition(int world) {
  Partition out(static_cast<std::size_t>(world));
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

Partition world_partition(int world) { return Partition(static_cast<std::size_t>(world), 0U); }

std::vector<int> members(const Partition& partition, int rank) {
  check(rank >= 0 && rank < static_cast<int>(partition.size()), "members: rank ", rank, " is not in a partition of ",
        partition.size(), " ranks");
  std::vector<int> out;
  for (int r = 0; r < static_cast<int>(partition.size()); ++r) {
    if (partition[static_cast<std::size_t>(r)] == partition[static_cast<std::size_t>(rank)]) out.push_back(r);
  }
  return out;
}

}  // namespace shale

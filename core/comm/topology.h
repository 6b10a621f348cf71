// Where ranks live. A value, equal on all ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace shale {

struct Topology {
  int world = 1;
  std::vector<std::uint32_t> node_of_rank{0};  // [world], node numbers from 0, ascending in rank order
  int micro_steps = 1;
  bool cuda = false;
  std::uint32_t device_arch = 0;   // CUDA 10 x major + minor of the oldest device; 0 = unknown
  std::uint64_t device_bytes = 0;  // memory of the smallest device; 0 = unknown
};

// A partition of the world into parts: color[rank] says which part; members of a part are ordered by rank.
using Partition = std::vector<std::uint32_t>;

Partition self_partition(int world);   // every rank alone
Partition world_partition(int world);  // all together
std::vector<int> members(const Partition&, int rank);  // the ranks of rank's part

}  // namespace shale

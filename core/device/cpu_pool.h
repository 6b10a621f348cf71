// The CPU allocator of shale: blocks of 1 MiB and more come from one reserved range with huge pages and are reused;
// smaller ones from the system. Counts exactly. Thread-safe.
#pragma once

#include <cstdint>

namespace shale {

struct PoolCounts {
  std::int64_t allocated = 0;          // bytes of tensors alive now
  std::int64_t peak = 0;               // highest `allocated` since reset_peak
  std::int64_t large_allocations = 0;  // blocks of 1 MiB and more handed out so far
  std::int64_t reserved = 0;           // bytes of the range touched so far
};

void install_cpu_pool();  // before the first tensor of the process, once
PoolCounts cpu_pool_counts();
void reset_cpu_pool_peak();

}  // namespace shale

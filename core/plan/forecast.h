// What a run will take before it takes it: memory of a rank, bytes on the wire, from the plans alone.
#pragma once

#include <cstdint>
#include <string>

#include "core/comm/topology.h"
#include "core/engine/memory.h"
#include "core/model/model.h"
#include "core/precision/policy.h"
#include "core/sharding/plan.h"

namespace shale {

struct Workload {
  std::int64_t micro_batch = 1, seq_len = 1;  // per rank and micro-step
  int micro_steps = 1;
  bool checkpoint_layers = false;
  std::int64_t process = 0;  // bytes of a process before its first tensor: libraries, heap, transport
  std::int64_t staging = 0;  // host memory that copies for background snapshots take
};

struct Forecast {
  // Bytes of a rank. activations: the most that is alive at once in forward and backward, temporaries included.
  std::int64_t masters = 0, moments = 0, grad_shards = 0, slots = 0, grad_slots = 0, kept = 0, activations = 0;
  std::int64_t hooks = 0;  // states and scratch of a strategy's own exchanges
  std::int64_t tensors() const {
    return masters + moments + grad_shards + slots + grad_slots + kept + activations + hooks;
  }
  std::int64_t process = 0;  // libraries and heap of a process before the first tensor
  std::int64_t staging = 0;  // copies for background snapshots
  std::int64_t total() const { return tensors() + staging + process; }
  // Payload a rank sends per step; what hooks of a strategy send is not known, and counted as if the core did it.
  bool own_exchanges = false;
  std::int64_t gather_bytes = 0, reduce_bytes = 0, replica_bytes = 0;
  std::int64_t sent() const { return gather_bytes + reduce_bytes + replica_bytes; }
};

Forecast forecast(const Model&, const MemoryPlan&, const ShardPlan&, const Topology&, const Workload&);

std::string describe(const Forecast&);  // a few lines for people

}  // namespace shale

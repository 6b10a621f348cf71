// Every byte the engine will hold, as numbers, from the plans alone: what allocation, forecast and offload plans read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/description.h"
#include "core/precision/policy.h"
#include "core/sharding/layout.h"
#include "core/sharding/plan.h"

namespace shale {

// A flat of a unit on one rank. Offsets are bytes from the start of the unit's slot.
struct FlatMemory {
  FlatLayout layout;
  ParameterPrecision precision;
  int ways = 1, position = 0;  // ranks of the shard group, my place in it
  ShardRange range;
  // Ranks that keep what was gathered, in pieces, for the next gather of it (0 = nobody keeps), my place among them.
  int kept_ways = 0, kept_position = 0;
  bool whole_weights = false;       // the master is what is computed with: no slot, no gather
  bool whole_grads = false;         // backward writes straight into the gradient shard: no slot, no reduction
  std::int64_t weight_offset = 0;   // of the gathered weights, ways * chunk elements of the compute dtype
  std::int64_t grad_offset = 0;     // of the full gradients, ways * chunk elements of the gradient dtype
  std::int64_t wire_offset = 0;     // of their copy in the reduce dtype, in the wire buffer; only when it differs
  std::int64_t staging_offset = 0;  // of what the others send, reduce dtype
  std::int64_t sum_offset = 0;      // of a reduction that is added to an earlier one, chunk elements, accumulate dtype
  std::int64_t elements() const { return range.chunk * ways; }
  std::int64_t kept() const { return kept_ways > 0 ? elements() / kept_ways : 0; }
};

struct UnitMemory {
  std::vector<FlatMemory> flats;
  int weight_slot = -1, grad_slot = -1;  // -1: needs none
  bool pinned = false;  // used by several positions or units: gradients open from the first use to the last
};

struct GradSlotBytes {
  std::int64_t grads = 0, wire = 0, staging = 0, sum = 0;  // sum: a reduction that is added to an earlier one
};

struct MemoryPlan {
  std::vector<UnitMemory> units;
  std::vector<std::int64_t> weight_slots;  // bytes of each
  std::vector<GradSlotBytes> grad_slots;
  // Totals in bytes: of this rank.
  std::int64_t masters = 0, moments = 0, grad_shards = 0;
  std::int64_t kept = 0;                 // pieces of gathered weights, for gathers inside a smaller group
  std::int64_t states = 0, scratch = 0;  // of a strategy's hooks
  std::int64_t slots() const, grads() const, total() const;
};

// rank: whose shares; micro_steps > 1 may need buffers that one micro-step does not.
MemoryPlan plan_memory(const ModelInfo&, const PrecisionTable&, const ShardPlan&, int rank, int micro_steps);

}  // namespace shale

// A strategy's own work in a step: gathering and reducing flats itself, and work every some steps. loader/ implements
// the interfaces over shale.sharding.exchange/1 and outer/1; engine/ calls them and provides the lanes they work on.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "core/comm/group.h"
#include "core/sharding/layout.h"

namespace shale {

// An ordered queue of work that runs beside the steps, with what hooks may use on it. Its functions are for the hook
// that was handed the lane, on the thread that calls it. CPU: they block until done. CUDA: they enqueue on the stream.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual void* stream() = 0;  // cudaStream_t; null on the CPU
  // My part of ShardPlan::groups[partition], with connections of this lane's own; null when I am alone in it.
  virtual Group* group(int partition) = 0;
  // Memory of the lane's device until the hook's work is done, 256-byte aligned, not cleared. Error{config} when the
  // hook takes more than the plan's scratch_bytes for its unit.
  virtual void* scratch(std::int64_t bytes) = 0;
  // State `index` of the plan: of a flat in the shard scopes, layout null else. Error{internal} for one there is not.
  virtual at::Tensor state(int index, const FlatLayout*) = 0;
  virtual void reset_state(int index, const FlatLayout*) = 0;  // back to its first value
};

enum class Purpose : std::uint32_t { forward = 0, backward = 1, evaluation = 2, update = 3 };

// Meaning of each member: shale_exchange_call in sdk/include/shale/sharding.h.
struct ExchangeCall {
  Purpose purpose = Purpose::forward;
  int group = 0, ways = 1;  // the partition of the plan that exchanges, and the ranks of my part
  std::int64_t step = 1;
  int micro_step = 0;
  bool last = true;  // the boundary
  double grad_scale = 1;
  bool after_skip = false;           // the step before was skipped; kept in snapshots
  const FlatLayout* flat = nullptr;  // address kept as long as the engine lives, range too
  const ShardRange* range = nullptr;
  Lane* lane = nullptr;
};

// Tensors are 1-d views, valid during the call (CUDA: until the lane's work has drained). Hooks of different lanes run
// at the same time on threads of their own. What goes wrong is thrown; the lane takes no more work then.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void gather(const ExchangeCall&, const at::Tensor& shard, const at::Tensor& full) = 0;
  virtual void reduce(const ExchangeCall&, const at::Tensor& full, const at::Tensor& shard) = 0;
  virtual void replicate(const ExchangeCall&, const at::Tensor& shard) = 0;
  virtual void step_end(std::int64_t step, bool skipped) = 0;  // on the stepping thread, no lane busy
};

struct OuterCall {
  std::int64_t step = 1;
  const FlatLayout* flat = nullptr;
  const ShardRange* range = nullptr;
  Lane* lane = nullptr;
};

class OuterStep {
 public:
  virtual ~OuterStep() = default;
  virtual void begin(const OuterCall&, const at::Tensor& master) = 0;
  virtual void apply(const OuterCall&, const at::Tensor& master) = 0;
};

}  // namespace shale

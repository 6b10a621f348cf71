// Collects the gradients of units in gradient slots and reduces them into the shards.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "core/engine/hooks.h"
#include "core/engine/state.h"
#include "core/sharding/plan.h"

namespace shale {

// Everything behind close() happens on the reduce stream; finish() and open() put the compute stream behind it.
class GradientReducer {
 public:
  GradientReducer(const ShardPlan& plan, Hooks& hooks, Streams* streams)
      : plan_(plan), hooks_(hooks), streams_(streams) {}

  // Before backward writes into the unit's gradients: the slot is free and its contents count as unwritten.
  void open(UnitState&);
  // After it: what nobody wrote becomes zero, and the reduction starts. last: of the step's micro-steps.
  void close(UnitState&, int unit_index, bool last);
  // Everything reduced and summed over the replicas.
  void finish(std::deque<GradSlot>&);
  // A new step: gradient shards count as empty.
  void begin_step(std::deque<UnitState>&);
  // Nothing of an earlier step is under way on the device.
  void settle() { order(streams_, Stream::reduce, Stream::compute); }
  // Drops what an error left under way.
  void abandon(std::deque<UnitState>&, std::deque<GradSlot>&);
  std::int64_t reductions() const { return reductions_; }  // of units, so far

 private:
  void retire(GradSlot&);
  void start(FlatState&, const UnitPlan&, GradSlot&);
  void collect(FlatState&);
  std::unique_ptr<Work> sum_replicas(FlatState&, const at::Tensor& mine);

  const ShardPlan& plan_;
  Hooks& hooks_;
  Streams* streams_;
  Works replica_sums_;
  std::int64_t reductions_ = 0;
};

}  // namespace shale

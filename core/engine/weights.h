// Brings the full weights of units into their slots and keeps track of what is where.
#pragma once

#include <cstdint>

#include "core/engine/hooks.h"
#include "core/engine/state.h"

namespace shale {

// What it does to slots happens on the gather stream, behind what still uses them; what computes with a slot on the
// compute stream waits for it.
class WeightGatherer {
 public:
  WeightGatherer(const ShardPlan& plan, Hooks& hooks, Streams* streams)
      : plan_(plan), hooks_(hooks), streams_(streams) {}

  // Starts a gather unless the unit's current weights are there or on their way. A slot in use is left alone.
  void prefetch(UnitState&);
  // The unit's current weights are in its slot on return; marks the slot busy.
  void acquire(UnitState&);
  void release(UnitState&);
  // Before a unit computes: the slot holds this unit's weights of this epoch, or it is a bug.
  void verify(const UnitState&) const;
  // No gather reads masters any more: they may be written.
  void settle() { order(streams_, Stream::gather, Stream::compute); }
  // The same for gathers of hooks, which read masters while they run.
  void drain(std::deque<WeightSlot>&);
  // After the optimizer: everything gathered is stale and no slot is in use.
  void invalidate(std::deque<WeightSlot>&);
  std::int64_t gathers() const { return gathers_; }  // of units, so far

 private:
  bool current(const UnitState&) const;
  void start(UnitState&);
  void finish(UnitState&);

  const ShardPlan& plan_;
  Hooks& hooks_;
  Streams* streams_;
  std::int64_t epoch_ = 0, gathers_ = 0;
};

}  // namespace shale

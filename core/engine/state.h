// The engine's working state: slots, and what a unit and each of its uses hold. All memory is allocated once; the
// tensors here are views of it that never move. One thread, the one that runs the steps.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/comm/group.h"
#include "core/device/streams.h"
#include "core/engine/memory.h"
#include "core/model/description.h"
#include "core/ops/weight.h"
#include "core/sharding/shard.h"

namespace shale {

struct UnitState;

// Memory for the full weights of one unit at a time. The tag (holds, epoch) says whose weights of which optimizer step
// are in it; a wrong slot would be silent, so it is checked before every use.
struct WeightSlot {
  at::Tensor memory;  // [bytes] uint8
  const UnitState* holds = nullptr;
  std::int64_t epoch = -1;
  bool busy = false;     // a unit is computing in it
  bool landing = false;  // filled or being filled, not yet waited for
  Works gathers;         // under way
  EventPtr free;         // on the compute stream, after the last unit that computed in it
};

// Memory for the full gradients of one unit at a time, and for their reduction.
struct GradSlot {
  at::Tensor grads, wire, staging, sum;  // [bytes] uint8
  UnitState* owner = nullptr;            // whose reduction is under way
  Works reductions;
};

struct FlatState {
  const FlatMemory* plan = nullptr;
  Shard* shard = nullptr;
  bool reduces = false, replicated = false;  // gradients are summed over a shard group, over replicas
  Group *gather = nullptr, *reduce = nullptr, *replicas = nullptr;  // nullptr: nobody to talk to, or a hook does it
  Group* regather = nullptr;                                        // among those who keep pieces
  at::Tensor weights;       // [elements] compute dtype; the master itself when whole
  at::Tensor wire_weights;  // [elements] gather dtype, in the upper end of weights; undefined when they are the same
  at::Tensor kept;          // my piece of what was gathered last, as it travels; undefined when none is kept
  at::Tensor grads;         // [elements] gradient dtype; the gradient shard itself when whole
  at::Tensor wire_grads, staging, sum;
  at::Tensor shard_grads;  // [chunk] accumulate dtype; shard->grad is its owned part
  bool touched = false;    // shard_grads holds something of this step
};

struct UnitState {
  const UnitInfo* info = nullptr;
  std::vector<FlatState> flats;
  WeightSlot* weight_slot = nullptr;  // nullptr: computed with the masters
  GradSlot* grad_slot = nullptr;
  std::int64_t kept_epoch = -1;  // of the weights that the kept pieces are of
  bool pinned = false, trains = false;
  bool open = false;                               // gradients of this backward are being written
  bool replicas_now = false, closed_last = false;  // of the reduction under way: sync at this micro-step; the last one
  std::deque<bool> fresh;                          // per parameter: its gradient memory holds nothing yet
};

// A place in the forward order: one leaf per use of a parameter.
struct Position {
  UnitState* unit = nullptr;
  int unit_index = 0;
  std::vector<UnitState*> borrowed;  // owners of the borrowed parameters
  std::vector<Weight> weights;       // own, then borrowed; filled once, never resized
  bool trains = false;               // some parameter here has a gradient
};

}  // namespace shale

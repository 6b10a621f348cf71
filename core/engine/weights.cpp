#include "core/engine/weights.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "core/base/error.h"

namespace shale {
namespace {

#ifdef NDEBUG
constexpr bool kPoison = false;
#else
constexpr bool kPoison = true;  // stale weights become NaN, so that a wrong slot shows at once
#endif

void poison(const at::Tensor& memory) {
  if (kPoison) at::Tensor(memory).fill_(0xff);  // all bits set is a NaN in every float format
}

// What travels: the weights themselves, or their copy in a narrower dtype.
const at::Tensor& wire_of(const FlatState& f) { return f.wire_weights.defined() ? f.wire_weights : f.weights; }

// Where my kept piece lies in it.
at::Tensor kept_place(const FlatState& f) {
  return wire_of(f).narrow(0, f.plan->kept() * f.plan->kept_position, f.plan->kept());
}

// The wire values fill the upper end of the region they are widened into. Going up in blocks never overwrites what has
// not been read yet.
void widen(const at::Tensor& full, const at::Tensor& wire) {
  constexpr std::int64_t kBlock = 1 << 16;
  const auto n = full.numel();
  auto block = at::empty({std::min(n, kBlock)}, wire.options());
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const auto m = std::min(kBlock, n - i);
    auto part = block.narrow(0, 0, m);
    part.copy_(wire.narrow(0, i, m));
    full.narrow(0, i, m).copy_(part);
  }
}

}  // namespace

bool WeightGatherer::current(const UnitState& u) const {
  return !u.weight_slot || (u.weight_slot->holds == &u && u.weight_slot->epoch == epoch_);
}

void WeightGatherer::start(UnitState& u) {
  auto& slot = *u.weight_slot;
  const OnStream on(streams_, Stream::gather);
  wait_for(slot.free);
  wait_all(slot.gathers);  // a prefetch nobody used
  poison(slot.memory);
  slot.holds = &u, slot.epoch = epoch_, slot.landing = true;
  bool sent = false;
  for (auto& f : u.flats) {
    if (f.plan->whole_weights) continue;
    const bool again = f.kept.defined() && u.kept_epoch == epoch_;
    if (hooks_.gathers(*f.plan)) {
      const auto& u_plan = plan_.units[f.plan->layout.unit];
      slot.gathers.push_back(again ? hooks_.gather(*f.plan, u_plan.reshard_group, f.kept, f.weights)
                                   : hooks_.gather(*f.plan, u_plan.shard_group, f.shard->master, f.weights));
      sent = true;
      continue;
    }
    const auto& wire = wire_of(f);
    if (again) {
      kept_place(f).copy_(f.kept);
      slot.gathers.push_back(f.regather->all_gather(wire)), sent = true;
      continue;
    }
    const auto& range = f.plan->range;
    // The cast, if any, goes straight to its place: no send buffer.
    wire.narrow(0, range.chunk * f.plan->position, range.length).copy_(f.shard->master);
    if (f.gather) slot.gathers.push_back(f.gather->all_gather(wire)), sent = true;
  }
  gathers_ += sent;
}

void WeightGatherer::finish(UnitState& u) {
  auto& slot = *u.weight_slot;
  if (!slot.landing) return;
  {
    const OnStream on(streams_, Stream::gather);
    wait_all(slot.gathers);
    slot.landing = false;
    for (auto& f : u.flats) {
      if (f.kept.defined() && u.kept_epoch != epoch_) f.kept.copy_(kept_place(f));
      if (f.wire_weights.defined()) widen(f.weights, f.wire_weights);
    }
    u.kept_epoch = epoch_;
  }
  order(streams_, Stream::gather, Stream::compute);
}

void WeightGatherer::prefetch(UnitState& u) {
  if (current(u) || u.weight_slot->busy) return;
  start(u);
}

void WeightGatherer::acquire(UnitState& u) {
  if (!u.weight_slot) return;
  if (!current(u)) {
    check(!u.weight_slot->busy, "the slot of unit ", u.info->name, " is in use by another unit");
    start(u);
  }
  finish(u);
  u.weight_slot->busy = true;
}

void WeightGatherer::release(UnitState& u) {
  if (!u.weight_slot) return;
  u.weight_slot->busy = false;
  record(u.weight_slot->free);
}

void WeightGatherer::verify(const UnitState& u) const {
  check(current(u), "the slot of unit ", u.info->name, " does not hold its current weights");
}

void WeightGatherer::drain(std::deque<WeightSlot>& slots) {
  {
    const OnStream on(streams_, Stream::gather);
    for (auto& slot : slots) wait_all(slot.gathers);
  }
  settle();
}

void WeightGatherer::invalidate(std::deque<WeightSlot>& slots) {
  ++epoch_;
  settle();
  for (auto& slot : slots) {
    wait_all(slot.gathers);
    slot.landing = slot.busy = false;
    poison(slot.memory);
  }
  order(streams_, Stream::compute, Stream::gather);  // the next ones read what the optimizer wrote
}

}  // namespace shale

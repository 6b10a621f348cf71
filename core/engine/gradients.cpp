#include "core/engine/gradients.h"

#include "core/base/error.h"

namespace shale {
namespace {

// A parameter whose gradient was not written holds another unit's; the space behind the last one likewise.
void clear_unwritten(UnitState& u) {
  for (auto& f : u.flats) {
    if (f.plan->layout.frozen) continue;
    const auto& layout = f.plan->layout;
    for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
      const int k = layout.parameters[i];
      if (!u.fresh[k]) continue;
      f.grads.narrow(0, layout.offsets[i], numel(u.info->parameters[k].shape)).zero_();
      u.fresh[k] = false;
    }
    const auto padding = f.plan->elements() - layout.numel;
    if (!f.plan->whole_grads && padding > 0) f.grads.narrow(0, layout.numel, padding).zero_();
  }
}

// Is this reduction summed over the replicas before it joins those of other micro-steps? A step's only reduction need
// not be waited for. Without a shard group the reduction itself was over the replicas.
bool summed_at_once(const UnitState& u, const FlatState& f) {
  return f.replicated && u.replicas_now && (!f.reduces || f.touched || !u.closed_last);
}

// Where a reduction lands: in the shard, or beside it when it is added to those of earlier micro-steps afterwards.
const at::Tensor& target(const FlatState& f) { return f.touched && f.sum.defined() ? f.sum : f.shard_grads; }
at::Tensor owned(const FlatState& f, const at::Tensor& chunk) { return chunk.narrow(0, 0, f.plan->range.length); }

// All-reduces in a narrower dtype than the sum is kept in.
class CastWork final : public Work {
 public:
  CastWork(at::Tensor to, at::Tensor wire, std::unique_ptr<Work> work)
      : to_(std::move(to)), wire_(std::move(wire)), work_(std::move(work)) {}
  void wait() override {
    work_->wait();
    to_.copy_(wire_);
  }

 private:
  at::Tensor to_, wire_;
  std::unique_ptr<Work> work_;
};

}  // namespace

void GradientReducer::begin_step(std::deque<UnitState>& units) {
  for (auto& u : units)
    for (auto& f : u.flats) f.touched = false;
}

void GradientReducer::open(UnitState& u) {
  if (u.open || !u.trains) return;
  if (u.grad_slot && u.grad_slot->owner) {
    retire(*u.grad_slot);
    order(streams_, Stream::reduce, Stream::compute);  // the slot is drained
  }
  u.open = true;
  for (auto& f : u.flats)
    for (int k : f.plan->layout.parameters) u.fresh[k] = !(f.plan->whole_grads && f.touched);
}

void GradientReducer::close(UnitState& u, int unit_index, bool last) {
  if (!u.open) return;
  u.open = false;
  clear_unwritten(u);
  order(streams_, Stream::compute, Stream::reduce);  // the gradients are complete
  const OnStream on(streams_, Stream::reduce);
  const auto& plan = plan_.units[unit_index];
  bool reduced = false;
  for (auto& f : u.flats) {
    if (f.plan->layout.frozen) continue;
    reduced |= f.reduces;
    if (f.plan->whole_grads) {
      f.touched = true;
      if (last && f.replicated) replica_sums_.push_back(sum_replicas(f, f.shard_grads));
    } else {
      start(f, plan, *u.grad_slot);
    }
  }
  reductions_ += reduced;
  if (!u.grad_slot) return;
  u.grad_slot->owner = &u;
  u.replicas_now = plan.replica_at == SyncAt::micro_step && !hooks_.replicates();
  u.closed_last = last;
}

void GradientReducer::start(FlatState& f, const UnitPlan& plan, GradSlot& slot) {
  if (hooks_.reduces(*f.plan)) {  // adds to what is there
    const auto& mine = target(f);
    if (!f.touched || f.sum.defined()) mine.zero_();
    slot.reductions.push_back(hooks_.reduce(*f.plan, f.grads, owned(f, mine)));
    return;
  }
  const auto& full = f.wire_grads.defined() ? f.wire_grads : f.grads;
  if (f.wire_grads.defined()) f.wire_grads.copy_(f.grads);
  if (f.reduces) {
    slot.reductions.push_back(f.reduce->reduce_scatter(target(f), full, f.staging));
  } else if (f.replicas && plan.replica_at == SyncAt::micro_step) {
    slot.reductions.push_back(f.replicas->all_reduce(full, Reduction::sum));
  }
}

// After the reduction of a flat has landed: into the gradient shard.
void GradientReducer::collect(FlatState& f) {
  if (f.reduces) {
    if (f.touched && f.sum.defined()) f.shard_grads.add_(f.sum);
  } else {
    const auto& full = f.wire_grads.defined() ? f.wire_grads : f.grads;
    if (f.touched)
      f.shard_grads.add_(full);
    else
      f.shard_grads.copy_(full);
  }
  f.touched = true;
}

std::unique_ptr<Work> GradientReducer::sum_replicas(FlatState& f, const at::Tensor& mine) {
  if (hooks_.replicates()) return hooks_.replicate(*f.plan, owned(f, mine));
  const auto reduce = f.plan->precision.reduce;
  if (reduce == mine.scalar_type()) return f.replicas->all_reduce(mine, Reduction::sum);
  auto wire = mine.to(reduce);
  auto work = f.replicas->all_reduce(wire, Reduction::sum);
  return std::make_unique<CastWork>(mine, wire, std::move(work));
}

void GradientReducer::retire(GradSlot& slot) {
  auto& u = *slot.owner;
  const OnStream on(streams_, Stream::reduce);
  wait_all(slot.reductions);
  slot.owner = nullptr;
  Works sums;
  for (auto& f : u.flats)
    if (f.reduces && !f.plan->layout.frozen && summed_at_once(u, f)) sums.push_back(sum_replicas(f, target(f)));
  wait_all(sums);
  for (auto& f : u.flats) {
    if (f.plan->layout.frozen || f.plan->whole_grads) continue;
    const bool done = summed_at_once(u, f);
    collect(f);
    if (f.replicated && !done && u.closed_last) replica_sums_.push_back(sum_replicas(f, f.shard_grads));
  }
}

void GradientReducer::finish(std::deque<GradSlot>& slots) {
  {
    const OnStream on(streams_, Stream::reduce);
    for (auto& slot : slots)
      if (slot.owner) retire(slot);
    wait_all(replica_sums_);
  }
  settle();
}

void GradientReducer::abandon(std::deque<UnitState>& units, std::deque<GradSlot>& slots) {
  const OnStream on(streams_, Stream::reduce);
  replica_sums_.clear();
  for (auto& slot : slots) slot.reductions.clear(), slot.owner = nullptr;
  for (auto& u : units) u.open = false;
}

}  // namespace shale

#include "core/engine/hooks.h"

#include <algorithm>

#include "core/base/error.h"

namespace shale {

Hooks::Hooks(const ShardPlan& plan, const std::deque<Shard>& shards, const GroupMaker& make, const HookOptions& options,
             at::Device device)
    : plan_(plan),
      exchange_(options.exchange),
      outer_(options.outer),
      states_(plan, shards, device, options.plugin, options.seed) {
  const auto& own = plan.own;
  check(exchange_ || !(own.gather || own.reduce || own.replicate || own.step_end), "a plan with hooks nobody provides");
  check(outer_ || !own.outer, "a plan with outer work nobody provides");
  if (own.gather) gather_lane_ = make_lane("gather", make, options, device);
  if (own.reduce || own.replicate) reduce_lane_ = make_lane("reduce", make, options, device);
  if (own.outer) outer_lane_ = make_lane("outer", make, options, device);
}

std::unique_ptr<WorkLane> Hooks::make_lane(const std::string& name, const GroupMaker& make, const HookOptions& options,
                                           at::Device device) {
  LaneSpec spec;
  const Stream stream = name == "gather" ? Stream::gather : name == "reduce" ? Stream::reduce : Stream::compute;
  if (options.streams != nullptr) spec.stream = options.streams->handle(stream);
  spec.name = name, spec.device = device, spec.limit = options.limit, spec.states = &states_;
  for (auto& u : plan_.units) spec.scratch = std::max(spec.scratch, u.scratch_bytes);
  for (std::size_t p = 0; p < plan_.groups.size(); ++p) {
    auto group = p == kSelfGroup ? nullptr : make(plan_.groups[p], str("lane.", name, ".", p));
    spec.groups.push_back(group && group->size() > 1 ? std::move(group) : nullptr);
  }
  return std::make_unique<WorkLane>(std::move(spec));
}

ExchangeCall Hooks::call(const FlatMemory& f, int partition) const {
  ExchangeCall c;
  c.purpose = now.purpose, c.step = now.step, c.micro_step = now.micro_step, c.last = now.last;
  c.grad_scale = now.grad_scale, c.after_skip = now.after_skip, c.group = partition, c.flat = &f.layout,
  c.range = &f.range;
  return c;
}

std::unique_ptr<Work> Hooks::gather(const FlatMemory& f, int partition, const at::Tensor& shard,
                                    const at::Tensor& full) {
  auto c = call(f, partition);
  const auto job = [this, c, shard, full](Lane& lane) mutable {
    const auto* group = lane.group(c.group);
    c.lane = &lane, c.ways = group ? group->size() : 1;
    exchange_->gather(c, shard, full);
  };
  return gather_lane_->submit(job, plan_.units[f.layout.unit].scratch_bytes);
}

std::unique_ptr<Work> Hooks::reduce(const FlatMemory& f, const at::Tensor& full, const at::Tensor& shard) {
  auto c = call(f, plan_.units[f.layout.unit].shard_group);
  c.ways = f.ways;
  const auto job = [this, c, full, shard](Lane& lane) mutable {
    c.lane = &lane;
    exchange_->reduce(c, full, shard);
  };
  return reduce_lane_->submit(job, plan_.units[f.layout.unit].scratch_bytes);
}

std::unique_ptr<Work> Hooks::replicate(const FlatMemory& f, const at::Tensor& shard) {
  auto c = call(f, plan_.units[f.layout.unit].replica_group);
  const auto job = [this, c, shard](Lane& lane) mutable {
    const auto* group = lane.group(c.group);
    c.lane = &lane, c.ways = group ? group->size() : 1;
    exchange_->replicate(c, shard);
  };
  return reduce_lane_->submit(job, plan_.units[f.layout.unit].scratch_bytes);
}

void Hooks::step_end(bool skipped) {
  if (outer_lane_) outer_lane_->wait_until_inputs_read();
  if (plan_.own.step_end) exchange_->step_end(now.step, skipped);
}

std::unique_ptr<Work> Hooks::outer_job(const FlatState& f, bool apply) {
  OuterCall c{now.step, &f.plan->layout, &f.plan->range, nullptr};
  const auto job = [this, c, apply, master = f.shard->master](Lane& lane) mutable {
    c.lane = &lane;
    apply ? outer_->apply(c, master) : outer_->begin(c, master);
  };
  return outer_lane_->submit(job, plan_.units[f.plan->layout.unit].scratch_bytes);
}

bool Hooks::outer_step(std::deque<UnitState>& units) {
  if (!outer_lane_) return false;
  if (first_step_ == 0) first_step_ = now.step;
  Works applied;
  for (std::size_t k = 0; k < units.size(); ++k) {
    const auto& u = plan_.units[k];
    if (u.outer_every == 0) continue;
    const auto due = [&](std::int64_t s) { return s > 0 && s % u.outer_every == u.outer_offset % u.outer_every; };
    const auto begun = now.step - u.outer_delay;
    const bool begins = due(now.step), applies = due(begun) && (begun >= first_step_ || loaded_);
    for (auto& f : units[k].flats) {
      if (f.plan->layout.frozen) continue;
      if (begins) begun_.push_back({now.step, outer_job(f, false)});
      if (applies) applied.push_back(outer_job(f, true));
    }
  }
  if (applied.empty()) return false;
  wait_for_outer(applied);
  return true;
}

// The lane is in order: with what is applied now, all that was begun in earlier steps has ended.
void Hooks::wait_for_outer(Works& applied) {
  try {
    wait_all(applied);
  } catch (const Error& e) {
    if (e.secondary()) drain();  // a begin failed first
    throw;
  }
  std::erase_if(begun_, [&](const Begun& b) { return b.step < now.step; });
}

void Hooks::drain() {
  for (auto& b : begun_) b.work->wait();
  begun_.clear();
}

std::map<std::string, Traffic> Hooks::traffic() const {
  std::map<std::string, Traffic> out;
  if (gather_lane_) out["gather"] = gather_lane_->traffic();
  if (reduce_lane_) out["reduce"] = reduce_lane_->traffic();
  if (outer_lane_) out["outer"] = outer_lane_->traffic();
  return out;
}

}  // namespace shale

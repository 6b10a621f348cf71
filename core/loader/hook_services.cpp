#include "core/loader/hook_services.h"

#include <algorithm>

#include "core/base/error.h"

namespace shale {

HookServices::HookServices(int rank)
    : rank_(rank), lane_(lane_table(this)), collectives_(collectives_table(this)), math_(math_table(this)) {}

const void* HookServices::find(const std::string& id) const {
  if (id == SHALE_LANE_SERVICE) return &lane_;
  if (id == SHALE_COLLECTIVES_SERVICE) return &collectives_;
  if (id == SHALE_MATH_SERVICE) return &math_;
  return nullptr;
}

void HookServices::use(const ShardPlan& plan, const ModelView& model) {
  flats_.use(&model);
  const std::lock_guard lock(mutex_);
  states_ = plan.states;
  parts_.clear();
  for (const Partition& group : plan.groups) {
    GroupPart part;
    for (std::size_t r = 0; r < group.size() && rank_ < static_cast<int>(group.size()); ++r) {
      if (group[r] != group[static_cast<std::size_t>(rank_)]) continue;
      if (static_cast<int>(r) < rank_) ++part.rank;
      ++part.size;
    }
    parts_.push_back(part);
  }
}

HookServices::Lent::Lent(HookServices& services, Lane& lane, at::Device device) : services_(services) {
  lane_.lane = &lane, lane_.device = device;
  const std::lock_guard lock(services_.mutex_);
  services_.lanes_.insert(&lane_);
}

HookServices::Lent::~Lent() {
  const std::lock_guard lock(services_.mutex_);
  services_.lanes_.erase(&lane_);
}

bool HookServices::lent(const shale_lane* lane) const {
  const std::lock_guard lock(mutex_);
  return lanes_.contains(lane);
}

GroupPart HookServices::part(std::uint32_t group) const {
  const std::lock_guard lock(mutex_);
  return group < parts_.size() ? parts_[group] : GroupPart{};
}

StateSpec HookServices::state(std::uint32_t index) const {
  const std::lock_guard lock(mutex_);
  return index < states_.size() ? states_[index] : StateSpec{};
}

std::size_t HookServices::states() const {
  const std::lock_guard lock(mutex_);
  return states_.size();
}

}  // namespace shale

// What the hooks of a sharding plugin work with: the lanes lent to them, and the services shale.lane/1,
// shale.collectives/1 and shale.math/1 on these.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/loader/abi.h"
#include "core/loader/flat_views.h"
#include "core/loader/status.h"
#include "core/sharding/exchange.h"
#include "core/sharding/plan.h"

// The opaque handle of plugins: a lane for the time of one hook.
struct shale_lane {
  shale::Lane* lane = nullptr;
  at::Device device = at::kCPU;  // where it works
  shale::Status failed;          // the first service call that went wrong
  at::Tensor staging;            // of reduce_scatter, kept for its next call
  at::Tensor changing;           // not to be sent: later steps may change it while it is on its way; perhaps none
};

namespace shale {

// My part of a group of the plan; size 0 = there is no such group.
struct GroupPart {
  std::uint32_t size = 0, rank = 0;
};

// Any thread; a lane by the hook it was lent to.
class HookServices {
 public:
  explicit HookServices(int rank);  // of this process in the run
  HookServices(const HookServices&) = delete;
  HookServices& operator=(const HookServices&) = delete;

  const void* find(const std::string& id) const;  // null: not one of the three
  // The latest plan, and the model it is for, which lives until the next call. Not while a hook runs.
  void use(const ShardPlan&, const ModelView&);
  FlatViews& flats() { return flats_; }

  class Lent {
   public:
    Lent(HookServices&, Lane&, at::Device);
    ~Lent();
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    shale_lane* handle() { return &lane_; }
    Status take_failure() { return std::move(lane_.failed); }

   private:
    HookServices& services_;
    shale_lane lane_;
  };

  // Runs the body of a service function: body(lane) gives its status. What goes wrong is kept in the lane, so that a
  // hook cannot lose it.
  template <class F>
  shale_status* answer(shale_lane* lane, F&& body) noexcept {
    shale_status* status = guarded([&]() -> shale_status* {
      if (!lent(lane)) return make_status(SHALE_BAD_ARGUMENT, "lane", "is not lent to this hook");
      shale_status* problem = guarded([&] { return body(*lane); });
      if (problem != nullptr && !lane->failed) lane->failed = copy_status(*problem);
      return problem;
    });
    return status;
  }
  GroupPart part(std::uint32_t group) const;
  StateSpec state(std::uint32_t index) const;  // name "" = there is no such state
  std::size_t states() const;

 private:
  bool lent(const shale_lane*) const;

  const int rank_;
  FlatViews flats_;
  mutable std::mutex mutex_;
  std::set<const shale_lane*> lanes_;
  std::vector<GroupPart> parts_;  // by group
  std::vector<StateSpec> states_;
  shale_lane_service lane_;
  shale_collectives collectives_;
  shale_math math_;
};

// The tables, whose functions take the HookServices first.
shale_lane_service lane_table(HookServices*);
shale_collectives collectives_table(HookServices*);
shale_math math_table(HookServices*);

}  // namespace shale

// The strategy's own exchanges and outer work, run on lanes beside the steps. Without hooks it does nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/topology.h"
#include "core/device/streams.h"
#include "core/engine/state.h"
#include "core/engine/states.h"
#include "core/engine/work_lane.h"
#include "core/sharding/exchange.h"
#include "core/sharding/plan.h"

namespace shale {

using GroupMaker = std::function<std::unique_ptr<Group>(const Partition&, const std::string& name)>;

struct HookOptions {
  Exchange* exchange = nullptr;  // may be null when ShardPlan::own says that nothing of it is used; outer likewise
  OuterStep* outer = nullptr;
  std::string plugin;  // chooses random first values, with the seed
  std::uint64_t seed = 0;
  double limit = 100;          // seconds a hook may run
  Streams* streams = nullptr;  // of the device
};

// What the step is at; hooks are told.
struct Moment {
  Purpose purpose = Purpose::forward;
  std::int64_t step = 1;
  int micro_step = 0;
  bool last = true;
  double grad_scale = 1;
  bool after_skip = false;  // the step before was skipped
};

class Hooks {
 public:
  // Collective: makes the lanes' groups. Plan and shards outlive it.
  Hooks(const ShardPlan&, const std::deque<Shard>&, const GroupMaker&, const HookOptions&, at::Device);

  // Does the strategy itself do this for the flat?
  bool gathers(const FlatMemory& f) const { return plan_.own.gather && f.ways > 1; }
  bool reduces(const FlatMemory& f) const { return plan_.own.reduce && f.ways > 1; }
  bool replicates() const { return plan_.own.replicate; }

  std::unique_ptr<Work> gather(const FlatMemory&, int partition, const at::Tensor& shard, const at::Tensor& full);
  std::unique_ptr<Work> reduce(const FlatMemory&, const at::Tensor& full, const at::Tensor& shard);
  std::unique_ptr<Work> replicate(const FlatMemory&, const at::Tensor& shard);
  // After the finite check, before the optimizer: no hook is reading masters any more, and the plugin knows.
  void step_end(bool skipped);
  // After the optimizer: the work that is due. True when masters may have changed.
  bool outer_step(std::deque<UnitState>&);
  void drain();  // outer work that is under way has ended, well or with its error

  StateStore& states() { return states_; }
  void states_loaded() { loaded_ = true; }         // from a snapshot: outer work begun before it can be applied
  std::map<std::string, Traffic> traffic() const;  // by lane
  Moment now;

 private:
  ExchangeCall call(const FlatMemory&, int partition) const;
  std::unique_ptr<WorkLane> make_lane(const std::string& name, const GroupMaker&, const HookOptions&, at::Device);
  std::unique_ptr<Work> outer_job(const FlatState&, bool apply);
  void wait_for_outer(Works& applied);

  const ShardPlan& plan_;
  Exchange* exchange_;
  OuterStep* outer_;
  StateStore states_;
  std::unique_ptr<WorkLane> gather_lane_, reduce_lane_, outer_lane_;  // null: not needed
  struct Begun {
    std::int64_t step;
    std::unique_ptr<Work> work;
  };
  std::vector<Begun> begun_;     // outer work that nothing has waited for
  std::int64_t first_step_ = 0;  // of this process; 0 = none yet
  bool loaded_ = false;
};

}  // namespace shale

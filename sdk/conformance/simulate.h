// A world of simulated ranks for trying hooks: each rank is an instance of the plugin in this process with services of
// its own, and runs its hooks on threads. Collectives meet over shared memory (board.h).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "board.h"
#include "host.h"
#include "model.h"
#include "numbers.h"
#include "plans.h"

namespace shale::conform {

struct Rank;
class World;

// One ordered queue of hooks of one rank; behind a shale_lane.
struct Lane {
  Rank* rank = nullptr;
  Board* board = nullptr;
  bool active = false;                               // a hook runs
  std::uint32_t number = 0;                          // of the hook call in this run
  int calls = 0;                                     // of services, in this run
  std::uint64_t budget = 0, taken = 0, staging = 0;  // of scratch; staging: what reduce_scatter has taken of it
  std::deque<Guarded> scratch;
  std::string refused;  // what a service refused this hook, "" = nothing
  Answer answer;        // of the hook that failed; nothing runs on the lane after it
  std::string failed;   // the name of that hook
  std::vector<std::string> problems;
};

// A flat as one rank sees it. Not movable: hooks keep its address.
struct Flat {
  Flat(const shale_unit&, std::vector<const shale_param*> with, std::uint32_t index);
  Flat(const Flat&) = delete;
  Flat& operator=(const Flat&) = delete;
  void cut(std::uint32_t ways, std::uint32_t place, std::uint32_t align);
  std::string name() const;
  bool frozen() const { return (params[0]->flags & SHALE_PARAM_FROZEN) != 0; }
  const shale_param& role() const { return *params[0]; }  // its dtypes are those of all

  std::vector<const shale_param*> params;
  std::vector<std::uint64_t> offsets;
  shale_flat c{};
};

constexpr std::uint32_t kGatherLane = 0, kReduceLane = 1, kOuterLane = 2, kLanes = 3;

struct Rank {
  Rank(World&, std::uint32_t id);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  Lane* running(shale_lane* handle);  // NULL = not a lane of this rank on which a hook runs
  shale_lane* handle(std::uint32_t lane) { return reinterpret_cast<shale_lane*>(&lanes[lane]); }

  World& world;
  std::uint32_t id;
  FakeHost host;
  shale_lane_service lane_service;
  shale_collectives collectives;
  shale_math math;
  shale_run run;
  Lane lanes[kLanes];
  std::unique_ptr<Instance> plugin;
  const shale_exchange* exchange = nullptr;
  const shale_outer* outer = nullptr;
  ShardingAnswer plan;
  std::deque<Flat> flats;
  std::deque<Buffer> masters;  // one per flat
  std::map<std::pair<std::uint32_t, const shale_flat*>, Buffer> states;
  std::atomic<const char*> stray = nullptr;  // a service used outside of a hook
};

// One hook call that all ranks make.
struct HookCall {
  std::string name;  // "gather of unit 1, flat 0"
  std::uint32_t unit;
  std::function<shale_status*(Rank&, shale_lane*)> hook;
};
using Queue = std::vector<HookCall>;

struct WorldShape {
  std::uint32_t ranks, node_size;
  ModelShape model;
};
std::string to_text(const WorldShape&);

class World {
 public:
  // Refused when the plugin has no plan for this world, std::runtime_error when the plan is illegal.
  World(const Library&, const WorldShape&, const Given&);
  ~World() { destroy(); }

  std::uint32_t size() const { return shape_.ranks; }
  Rank& rank(std::uint32_t k) { return *ranks_[k]; }
  const WorldShape& shape() const { return shape_; }
  const ShardingAnswer& plan() const { return ranks_[0]->plan; }
  const shale_unit_plan& plan_of(const Flat& f) const { return *plan().units[f.c.unit]; }
  std::size_t flats() const { return ranks_[0]->flats.size(); }
  const Flat& flat(std::size_t k) const { return ranks_[0]->flats[k]; }
  const std::vector<std::uint32_t>& part(std::uint32_t group, std::uint32_t rank) const;
  bool changes_math() const { return changes_math_; }
  const shale_exchange* exchange() const { return ranks_[0]->exchange; }  // NULL = none
  const shale_outer* outer() const { return ranks_[0]->outer; }

  // Queue k runs on lane k, all at once; what is wrong, one line each. With a fault only what must hold in spite of it.
  std::vector<std::string> run(const std::vector<Queue>& queues);
  std::vector<std::string> step_end(std::uint64_t step, bool skipped);
  std::vector<std::string> destroy();  // ends all instances

  struct Fault {
    std::uint32_t rank;
    int call;  // service call of a lane, from 0, that is refused on this rank
  };
  std::optional<Fault> fault;
  std::atomic<bool> met_fault = false;

 private:
  void bind(Rank&, const Library&, const Given&);
  void make_flats(Rank&);
  void make_states(Rank&);
  void run_queue(Rank&, std::uint32_t lane, const Queue&);
  void judge(std::uint32_t lane, std::vector<std::string>& out);
  void compare_states(std::vector<std::string>& out);

  WorldShape shape_;
  FakeModel model_;
  FakeTopology topology_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Board>> boards_;
  bool changes_math_ = false;
};

// Services of a rank; ctx = the Rank.
shale_lane_service lane_service(Rank*);
shale_collectives collective_service(Rank*);
shale_math math_service(Rank*);
shale_run run_service(Rank*, std::uint32_t world);

// The frame of every service call: `serve` runs on a lane whose hook is running and says what is wrong.
shale_status* serve(void* ctx, shale_lane*, const char* what, const std::function<Answer(Lane&)>& call);

// Deterministic numbers: of element k, for `salt`. any: all digits used; whole: small and exact in every float format.
double any_value(std::uint64_t k, std::uint64_t salt);
double whole_value(std::uint64_t k, std::uint64_t salt);
void fill_first(Buffer&, const StateAnswer&, const Flat*, const Buffer* master);

}  // namespace shale::conform

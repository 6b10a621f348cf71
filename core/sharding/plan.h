// What a sharding strategy answers before step 0: numbers per unit, no code. Equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "core/comm/topology.h"
#include "core/model/description.h"

namespace shale {

enum class GatherAt : std::uint32_t { on_use = 0, after_update = 1 };
enum class SyncAt : std::uint32_t { micro_step = 0, boundary = 1, never = 2 };

inline constexpr int kSelfGroup = 0, kWorldGroup = 1;  // positions in ShardPlan::groups that always exist

// Meaning of each number: shale_unit_plan in sdk/include/shale/sharding.h. Groups are positions in ShardPlan::groups.
struct UnitPlan {
  int shard_group = kSelfGroup, replica_group = kSelfGroup, reshard_group = kSelfGroup;
  GatherAt gather_at = GatherAt::on_use;
  SyncAt reduce_at = SyncAt::micro_step, replica_at = SyncAt::micro_step;
  int prefetch = 1;        // gathers under way ahead of this unit
  std::int64_t align = 1;  // elements: shard boundaries are multiples of it
  bool join = false;       // gathered, computed and reduced together with the unit before
  int outer_every = 0, outer_offset = 0, outer_delay = 0;  // steps; every 0 = no outer work
  std::int64_t scratch_bytes = 0;                          // most that one hook call takes
};

// A tensor a strategy's hooks keep: allocated, saved and resharded by the core. Meaning: shale_state in
// sdk/include/shale/services.h.
enum class StateScope : std::uint32_t { global = 0, rank = 1, shard = 2, shard_rank = 3 };
enum class StateFirst : std::uint32_t { fill = 0, master = 1, normal = 2 };
inline constexpr int kAllUnits = -1;

struct StateSpec {
  std::string name;
  StateScope scope = StateScope::global;
  int unit = kAllUnits;  // shard scopes: one tensor per trainable flat of it, or of every unit
  at::ScalarType dtype = at::kFloat;
  StateFirst first = StateFirst::fill;
  double fill = 0;
  bool refuse_reshape = false;  // on another world size or plan: refuse instead of starting from the first value
  std::int64_t numel = 0;       // scopes global and rank
};

// Which exchanges of a plan are made by the strategy's own hooks (exchange.h).
struct OwnHooks {
  bool gather = false, reduce = false, replicate = false, step_end = false, outer = false;
  bool any() const { return gather || reduce || replicate || step_end || outer; }
};

struct ShardPlan {
  std::vector<Partition> groups;
  std::vector<UnitPlan> units;    // one per unit of the model
  int weight_slots = 0;           // slots that layers take turns in; 0 = prefetch + 1
  int grad_slots = 0;             // 0 = 2
  std::vector<StateSpec> states;  // a hook names a state by its position
  OwnHooks own;
  std::string text() const;  // every number, one line each, for hashing and for people
};

// Refuses what the engine cannot do: Error{config} naming the unit and both numbers.
void validate(const ShardPlan&, const ModelInfo&, const Topology&);

}  // namespace shale

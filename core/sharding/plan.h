// What a sharding strategy answers before step 0: numbers per unit, no code. Equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
};

struct ShardPlan {
  std::vector<Partition> groups;
  std::vector<UnitPlan> units;  // one per unit of the model
  int weight_slots = 0;         // slots that layers take turns in; 0 = prefetch + 1
  int grad_slots = 0;           // 0 = 2
  std::string text() const;     // every number, one line each, for hashing and for people
};

// Refuses what the engine cannot do: Error{config} naming the unit and both numbers.
void validate(const ShardPlan&, const ModelInfo&, const Topology&);

}  // namespace shale

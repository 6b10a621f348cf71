// shale plugin SDK 0.1 for C++20: questions that sharding plans often ask about units, and answers they often give.
#pragma once

#include "shale/plugin.hpp"

namespace shale::sdk {

// Another unit uses one of its parameters too (a tied head), so its weights must stay from the first use to the last.
inline bool lends(const shale_unit& unit) {
  for (std::uint32_t k = 0; k < unit.n_params; ++k)
    if (unit.params[k]->flags & SHALE_PARAM_TIED) return true;
  return false;
}

// Does unit k go into the one before it, when each `together` layers in a row make one unit (shale_unit_plan.join)?
inline bool joins(const shale_model& model, std::uint32_t k, std::uint32_t together) {
  if (model.units[k]->kind != SHALE_UNIT_LAYER) return false;
  std::uint32_t before = 0;
  while (before < k && model.units[k - before - 1]->kind == SHALE_UNIT_LAYER) ++before;
  return before % together != 0;
}

// Every rank holds the unit whole and its gradients are summed over all ranks, as often as those of split units.
inline void keep_whole(shale_unit_plan& u) {
  u.shard_group = u.reshard_group = SHALE_GROUP_SELF;
  u.replica_group = SHALE_GROUP_WORLD;
  u.replica_at = u.reduce_at;
}

}  // namespace shale::sdk

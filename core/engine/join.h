// Units that a plan wants gathered, computed and reduced together become one, before anything is laid out.
#pragma once

#include "core/model/model.h"
#include "core/precision/policy.h"
#include "core/sharding/plan.h"

namespace shale {

// Each unit with UnitPlan::join goes into the one before it: "layers.0+1" with the parameters of both in order and the
// plan of the first. Error{config} where that cannot be: only layers are joined, which run once, one right after the
// other, and only without hooks of the strategy.
void join_units(Model&, PrecisionTable&, ShardPlan&);

}  // namespace shale

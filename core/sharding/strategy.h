// The interface of sharding strategies; loader/ implements it over the plugin ABI.
#pragma once

#include "core/comm/topology.h"
#include "core/model/description.h"
#include "core/sharding/exchange.h"
#include "core/sharding/plan.h"

namespace shale {

class ShardingStrategy {
 public:
  virtual ~ShardingStrategy() = default;
  // Pure and the same on all ranks; may be asked for worlds that are not this one. Error as the plugin words it.
  virtual ShardPlan plan(const ModelInfo&, const Topology&) = 0;
  // Its own work, null when it has none; ShardPlan::own says which of the functions may be called.
  virtual Exchange* exchange() { return nullptr; }
  virtual OuterStep* outer() { return nullptr; }
};

}  // namespace shale

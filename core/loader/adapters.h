// The four interfaces of the core over the tables of plugins. Each owns its instance, which has been created.
#pragma once

#include <memory>
#include <optional>

#include "core/checkpoint/format.h"
#include "core/loader/instance.h"
#include "core/offload/policy.h"
#include "core/precision/policy.h"
#include "core/sharding/strategy.h"

namespace shale {

// The latest precision plan: sharding and offload plans are asked with its dtypes.
struct LatestDtypes {
  std::optional<PrecisionTable> table;
  const PrecisionTable* of(const ModelInfo&) const;  // null when it is not of a model of this shape
};

using SharedDtypes = std::shared_ptr<LatestDtypes>;
using OwnedInstance = std::unique_ptr<PluginInstance>;

std::unique_ptr<ShardingStrategy> make_sharding(OwnedInstance, SharedDtypes);
// Over the optional tables of a sharding plugin, which outlives them.
std::unique_ptr<Exchange> make_exchange(PluginInstance&, const shale_exchange&);
std::unique_ptr<OuterStep> make_outer(PluginInstance&, const shale_outer&);
std::unique_ptr<PrecisionPolicy> make_precision(OwnedInstance, SharedDtypes);
std::unique_ptr<OffloadPolicy> make_offload(OwnedInstance, SharedDtypes);
std::unique_ptr<CheckpointFormat> make_checkpoint(OwnedInstance);

}  // namespace shale

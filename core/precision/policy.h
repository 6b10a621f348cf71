// Number formats per parameter and role, and the interface of precision policies, which loader/ implements over the
// plugin ABI.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "core/comm/topology.h"
#include "core/model/description.h"

namespace shale {

// Roles as in shale_param_precision of sdk/include/shale/precision.h.
struct ParameterPrecision {
  at::ScalarType master = at::kFloat;      // the shard the optimizer owns
  at::ScalarType compute = at::kFloat;     // slot and operators
  at::ScalarType gather = at::kFloat;      // on the wire to the slot: compute, or narrower
  at::ScalarType grad = at::kFloat;        // gradient slot
  at::ScalarType reduce = at::kFloat;      // on the wire of every gradient collective
  at::ScalarType accumulate = at::kFloat;  // gradient shard: float32 or float64
  at::ScalarType moments = at::kFloat;     // optimizer state
  bool operator==(const ParameterPrecision&) const = default;
};

// Dynamic loss scale; growth_steps 0 = static.
struct LossScale {
  double initial = 1, growth = 2, backoff = 0.5, min = 1, max = 16777216;
  int growth_steps = 0, hysteresis = 1, max_skips = 50;
};

struct PrecisionTable {
  std::vector<std::vector<ParameterPrecision>> units;  // [unit][parameter owned by it]
  std::optional<LossScale> loss_scale;
  std::string text() const;  // every dtype and number, for hashing
};

class PrecisionPolicy {
 public:
  virtual ~PrecisionPolicy() = default;
  virtual PrecisionTable plan(const ModelInfo&, const Topology&) = 0;  // pure, equal on all ranks
};

// Refuses what the engine cannot do, Error{config} naming parameter and dtypes.
void validate(const PrecisionTable&, const ModelInfo&);

}  // namespace shale

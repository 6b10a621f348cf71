#include "core/offload/policy.h"

#include "core/base/error.h"

namespace shale {
namespace {

const char* class_name(std::size_t c) {
  static constexpr const char* names[] = {"master", "moments", "grads", "shadow", "activations", "state"};
  return names[c];
}

const char* tier_name(Tier t) {
  static constexpr const char* names[] = {"device", "pinned host", "host", "store"};
  return names[static_cast<std::size_t>(t)];
}

}  // namespace

void validate(const OffloadPlan& plan, const ModelInfo& model, const Topology& topology) {
  check(plan.units.size() == model.units.size(), "offload plan has ", plan.units.size(), " units");
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    for (std::size_t c = 0; c < kMemoryClasses; ++c) {
      const auto tier = plan.units[u][c];
      // On a CPU run host memory is the device's memory.
      const bool here = tier == Tier::device || (!topology.cuda && tier != Tier::store);
      if (!here)
        fail(Code::config, "[offload] the plan puts ", class_name(c), " of unit ", model.units[u].name, " on ",
             tier_name(tier), "; this version of shale keeps everything on the device");
    }
}

}  // namespace shale

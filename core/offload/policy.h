// Where each class of memory lives between uses, and the interface of offload policies, which loader/ implements over
// the plugin ABI.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/comm/topology.h"
#include "core/model/description.h"

namespace shale {

enum class MemoryClass : std::uint32_t { master, moments, grads, shadow, activations, state };
inline constexpr std::size_t kMemoryClasses = 6;
enum class Tier : std::uint32_t { device, pinned, host, store };

struct OffloadPlan {
  std::vector<std::array<Tier, kMemoryClasses>> units;  // one row per unit
};

struct OffloadAsk {                                              // the largest rank's figures
  std::vector<std::array<std::uint64_t, kMemoryClasses>> bytes;  // one row per unit
  std::uint64_t device_free = 0, host_free = 0;                  // 0 = unknown
};

class OffloadPolicy {
 public:
  virtual ~OffloadPolicy() = default;
  virtual OffloadPlan plan(const ModelInfo&, const Topology&, const OffloadAsk&) = 0;  // pure, equal on all ranks
};

// Refuses what the engine cannot do on this device, Error{config} naming unit, class and tier.
void validate(const OffloadPlan&, const ModelInfo&, const Topology&);

}  // namespace shale

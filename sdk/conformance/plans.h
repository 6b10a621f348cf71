// Asks a plugin for its plan and says what is illegal in it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host.h"
#include "model.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"

namespace shale::conform {

struct StateAnswer {
  std::string name;
  std::uint32_t scope = 0, unit = 0;
  std::uint64_t numel = 0;
  std::uint32_t dtype = 0, first = 0, on_reshape = 0;
  double fill = 0;
  bool operator==(const StateAnswer&) const = default;
};

struct ShardingAnswer {
  std::vector<std::vector<std::uint32_t>> groups;  // [group][rank] color
  std::vector<std::optional<shale_unit_plan>> units;
  std::uint32_t weight_slots = 0, grad_slots = 0;
  std::vector<StateAnswer> states;

  std::string text() const;  // every number: equal texts are equal plans
  // The ranks that share a part of the group with `rank`.
  std::vector<std::uint32_t> part(std::uint32_t group, std::uint32_t rank) const;
};

struct PrecisionAnswer {
  std::vector<std::optional<shale_param_precision>> params;
  std::optional<shale_loss_scale> loss_scale;
  std::vector<StateAnswer> states;
  std::uint32_t recipes = 0;  // set_linear calls
  std::string text() const;
};

struct OffloadAnswer {
  std::vector<std::array<std::uint32_t, SHALE_N_CLASSES>> tiers;  // [unit][class]
  std::uint64_t tile_bytes = 0;
  std::uint32_t depth = 0;
  std::string text() const;
};

struct PlanQuestion {
  const FakeModel& model;
  const FakeTopology& topology;
  int fail_at = -1;  // the builder refuses its call number fail_at, from 0
};

// `out` is what was set until the answer; the answer is what plan returned.
Answer ask(const Instance&, const PlanQuestion&, ShardingAnswer& out);
Answer ask(const Instance&, const PlanQuestion&, PrecisionAnswer& out);
Answer ask(const Instance&, const PlanQuestion&, OffloadAnswer& out);

// What shale would refuse in a plan, one line each; empty = legal.
std::vector<std::string> problems(const ShardingAnswer&, const FakeModel&);
std::vector<std::string> problems(const PrecisionAnswer&, const FakeModel&);
std::vector<std::string> problems(const OffloadAnswer&, const FakeModel&);

}  // namespace shale::conform

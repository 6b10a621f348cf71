#include "core/offload/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/architecture.h"
#include "tests/core/base/error_text.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

ModelInfo model() {
  Architecture a;
  a.n_layers = 2;
  return describe(a);
}

OffloadPlan plan_with(Tier tier, std::size_t unit, MemoryClass what) {
  OffloadPlan plan;
  plan.units.resize(model().units.size());
  for (auto& row : plan.units) row.fill(Tier::device);
  plan.units[unit][static_cast<std::size_t>(what)] = tier;
  return plan;
}

Topology topology(bool cuda) {
  Topology t;
  t.cuda = cuda;
  return t;
}

TEST(ValidateOffload, EverythingOnTheDeviceIsFine) {
  for (bool cuda : {false, true})
    EXPECT_NO_THROW(validate(plan_with(Tier::device, 0, MemoryClass::master), model(), topology(cuda)));
}

TEST(ValidateOffload, HostMemoryIsTheDeviceOfACpuRun) {
  for (auto tier : {Tier::host, Tier::pinned})
    EXPECT_NO_THROW(validate(plan_with(tier, 1, MemoryClass::moments), model(), topology(false)));
}

TEST(ValidateOffload, RefusesWhatIsNotThere) {
  struct Place {
    MemoryClass what;
    const char* name;
  };
  for (auto [what, name] : {Place{MemoryClass::master, "master"}, Place{MemoryClass::moments, "moments"},
                            Place{MemoryClass::grads, "grads"}, Place{MemoryClass::shadow, "shadow"},
                            Place{MemoryClass::activations, "activations"}, Place{MemoryClass::state, "state"}}) {
    const auto refusal = [&](Tier tier, bool cuda) {
      const auto plan = plan_with(tier, 2, what);
      return error_text(Code::config, [&] { validate(plan, model(), topology(cuda)); });
    };
    EXPECT_THAT(refusal(Tier::store, false), HasSubstr(str("puts ", name, " of unit layers.1 on store")));
    EXPECT_THAT(refusal(Tier::store, true), HasSubstr("keeps everything on the device"));
    EXPECT_THAT(refusal(Tier::host, true), HasSubstr("on host"));
    EXPECT_THAT(refusal(Tier::pinned, true), HasSubstr("on pinned host"));
  }
}

TEST(ValidateOffload, APlanOfAnotherModelIsABug) {
  auto plan = plan_with(Tier::device, 0, MemoryClass::master);
  plan.units.pop_back();
  EXPECT_THAT(error_text(Code::internal, [&] { validate(plan, model(), topology(false)); }), HasSubstr("3 units"));
}

}  // namespace
}  // namespace shale

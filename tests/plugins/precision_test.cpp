// uniform and bf16_mixed: the dtype of every role.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans.h"
#include "plugin_files.h"

namespace shale {
namespace {

using namespace conform;

PrecisionAnswer ask_for(const std::string& name, const Given& given) {
  FakeHost host;
  const Library library(plugin_file(name));
  const Instance plugin(library, SHALE_KIND_PRECISION, host, given);
  const FakeModel model({.layers = 3, .tied = true});
  const FakeTopology topology(2, 2);
  PrecisionAnswer plan;
  const Answer answer = ask(plugin, {model, topology}, plan);
  EXPECT_EQ(answer.code, 0u) << to_text(answer);
  EXPECT_THAT(problems(plan, model), testing::IsEmpty());
  EXPECT_FALSE(plan.loss_scale);
  return plan;
}

// Role by role in the order of the struct: master compute gather grad reduce accumulate moments.
void expect_roles(const PrecisionAnswer& plan, const std::vector<std::uint32_t>& roles) {
  ASSERT_FALSE(plan.params.empty());
  for (auto& p : plan.params) {
    const std::vector<std::uint32_t> found = {p->master, p->compute,    p->gather, p->grad,
                                              p->reduce, p->accumulate, p->moments};
    EXPECT_EQ(found, roles);
    EXPECT_EQ(p->master_rounding, SHALE_ROUND_NEAREST);
    EXPECT_EQ(p->moments_block, 0u);
  }
}

constexpr std::uint32_t kF64 = SHALE_F64, kF32 = SHALE_F32, kBf16 = SHALE_BF16;

TEST(Uniform, OneFormatForAllRoles) {
  expect_roles(ask_for("precision_uniform", {}), std::vector(7, kF32));
  expect_roles(ask_for("precision_uniform", {{"dtype", "float32"}}), std::vector(7, kF32));
  expect_roles(ask_for("precision_uniform", {{"dtype", "float64"}}), std::vector(7, kF64));
}

TEST(Bf16Mixed, ComputeRunsTheModelInBf16) {
  const std::vector roles = {kF32, kBf16, kBf16, kBf16, kF32, kF32, kF32};
  expect_roles(ask_for("precision_bf16_mixed", {}), roles);
  expect_roles(ask_for("precision_bf16_mixed", {{"mode", "compute"}}), roles);
}

TEST(Bf16Mixed, StorageSendsBf16AndComputesInFp32) {
  expect_roles(ask_for("precision_bf16_mixed", {{"mode", "storage"}}), {kF32, kF32, kBf16, kF32, kF32, kF32, kF32});
}

TEST(Precision, OtherFormatsAreNotOffered) {
  FakeHost host;
  const Library library(plugin_file("precision_uniform"));
  EXPECT_THROW(Instance(library, SHALE_KIND_PRECISION, host, {{"dtype", "bfloat16"}}), std::invalid_argument);
}

}  // namespace
}  // namespace shale

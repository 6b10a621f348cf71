// Readers take min(mine, theirs), in both directions; a plugin that does not is told from one that does.
#include <gtest/gtest.h>

#include <cstring>

#include "plans.h"

namespace shale {
namespace {

using namespace conform;

constexpr std::uint64_t kRubbish = 0x5a5a5a5a5a5a5a5a;
constexpr std::size_t kShort = offsetof(shale_topology, device_bytes);

std::uint64_t scratch_for(const std::string& name, std::size_t topology_bytes) {
  FakeHost host;
  const Library library(SHALE_TEST_PLUGIN_DIR "/" + name + ".so");
  const Instance plugin(library, SHALE_KIND_SHARDING, host);
  const FakeModel model;
  const FakeTopology topology(4, 2, topology_bytes);
  ShardingAnswer plan;
  const Answer answer = ask(plugin, {model, topology}, plan);
  EXPECT_EQ(answer.code, 0u) << to_text(answer);
  EXPECT_EQ(plan.units[0]->shard_group, SHALE_GROUP_WORLD);
  return plan.units[0]->scratch_bytes;
}

TEST(Compat, BothNew) { EXPECT_EQ(scratch_for("probe", sizeof(shale_topology)), std::uint64_t{1} << 36); }
TEST(Compat, OlderHost) { EXPECT_EQ(scratch_for("probe", kShort), 7u); }
TEST(Compat, NewerHost) { EXPECT_EQ(scratch_for("probe", sizeof(shale_topology) + 64), std::uint64_t{1} << 36); }
TEST(Compat, OlderPlugin) { EXPECT_EQ(scratch_for("probe_old", sizeof(shale_topology)), 0u); }
TEST(Compat, OlderPluginInOlderHost) { EXPECT_EQ(scratch_for("probe_old", kShort), 0u); }

#ifndef __SANITIZE_ADDRESS__
TEST(Compat, TheCarelessPluginReadsRubbish) { EXPECT_EQ(scratch_for("probe_careless", kShort), kRubbish); }
#endif

TEST(Has, CountsWholeMembersOnly) {
  SHALE_VAR(shale_topology, t);
  const std::uint32_t end = offsetof(shale_topology, device_bytes) + sizeof t.device_bytes;
  EXPECT_EQ(end, sizeof t);
  for (auto [size, has] : {std::pair<std::uint32_t, bool>{0, false},
                           {4, false},
                           {end - 8, false},
                           {end - 1, false},
                           {end, true},
                           {end + 1, true},
                           {0xffffffffu, true}}) {
    t.struct_size = size;
    EXPECT_EQ(SHALE_HAS(&t, device_bytes), has) << size;
  }
}

TEST(LastUnit, FollowsTheOrderWhereThereIsOne) {
  const std::uint32_t order[] = {0, 1, 2, 1};
  SHALE_VAR(shale_model, m);
  m.n_units = 3;
  EXPECT_EQ(shale_last_unit(&m), 2u);
  m.order = order, m.n_order = 4;
  EXPECT_EQ(shale_last_unit(&m), 1u);
  m.struct_size = offsetof(shale_model, order);
  EXPECT_EQ(shale_last_unit(&m), 2u);
}

TEST(Tensor, SubRanges) {
  float data[12] = {};
  SHALE_VAR(shale_tensor, t);
  t.dtype = SHALE_F32, t.data = data, t.ndim = 1, t.shape[0] = 12, t.strides[0] = 1;
  const shale_tensor part = shale_range(&t, 5, 3);
  EXPECT_EQ(part.data, data + 5);
  EXPECT_EQ(part.ndim, 1u);
  EXPECT_EQ(part.shape[0], 3);
  EXPECT_EQ(part.strides[0], 1);
  const shale_tensor rows = shale_matrix(&t, 4, 2, 4);
  EXPECT_EQ(rows.data, data + 4);
  EXPECT_EQ(rows.shape[1], 4);
  EXPECT_EQ(rows.strides[0], 4);
  EXPECT_EQ(rows.strides[1], 1);
}

TEST(Fail, FormatsAndCutsLongTexts) {
  FakeHost host;
  const Answer answer = host.take(shale_fail(host.get(), SHALE_BAD_OPTION, "size", "must divide %u (got %u)", 8u, 3u));
  EXPECT_EQ(answer.code, SHALE_BAD_OPTION);
  EXPECT_EQ(answer.where, "size");
  EXPECT_EQ(answer.text, "must divide 8 (got 3)");
  const std::string much(2000, 'x');
  EXPECT_EQ(host.take(shale_fail(host.get(), SHALE_INTERNAL, "", "%s", much.c_str())).text.size(), 511u);
  EXPECT_EQ(host.live(), 0);
}

}  // namespace
}  // namespace shale

// The kit tells good plugins from bad ones: each bad one fails the case it was made for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "checks.h"
#include "plans.h"

namespace shale {
namespace {

using namespace conform;

std::string file_of(const std::string& name) { return SHALE_TEST_PLUGIN_DIR "/" + name + ".so"; }

class BadPlugin : public testing::TestWithParam<const Check*> {};

TEST_P(BadPlugin, FailsItsCase) {
  std::string name = GetParam()->name;
  const bool format = name == "format" || name == "round-trip" || name == "damage";
  const std::string stem = format ? "bad_format_" : "bad_";
  std::replace(name.begin(), name.end(), '-', '_');
  const Verdict bad = run_apart(*GetParam(), file_of(stem + name));
  EXPECT_NE(bad.outcome, Outcome::pass);
  EXPECT_FALSE(bad.problems.empty());
  const Verdict good = run_apart(*GetParam(), file_of(stem + "not"));
  EXPECT_EQ(good.outcome, Outcome::pass) << testing::PrintToString(good.problems);
}

bool runs_hooks(const std::string& name) {  // its bad plugins: simulate_test.cpp
  const std::vector<std::string> names = {"hooks",   "gather", "reduce", "replicate", "not-finite",
                                          "skipped", "lanes",  "outer",  "repeat",    "faults"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<const Check*> checks_without_hooks() {
  std::vector<const Check*> some;
  for (auto& check : checks())
    if (!runs_hooks(check.name)) some.push_back(&check);
  return some;
}
INSTANTIATE_TEST_SUITE_P(Cases, BadPlugin, testing::ValuesIn(checks_without_hooks()), [](const auto& info) {
  std::string name = info.param->name;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

const Check& check_named(const std::string& name) {
  for (auto& check : checks())
    if (name == check.name) return check;
  throw std::runtime_error("no case " + name);
}

TEST(Kit, ACrashIsReportedAsOne) {
  EXPECT_EQ(run_apart(check_named("bounds"), file_of("bad_bounds")).outcome, Outcome::crash);
}

TEST(Kit, AHangIsEnded) {
  EXPECT_EQ(run_apart(check_named("plans"), file_of("bad_hang"), 0.5).outcome, Outcome::timeout);
}

TEST(Kit, WhatIsNoPluginFailsWithTheLinkersWords) {
  for (auto& check : checks()) EXPECT_NE(run_apart(check, "/nonexistent.so").outcome, Outcome::pass) << check.name;
  const Verdict v = run_apart(check_named("entry"), "/nonexistent.so");
  ASSERT_EQ(v.problems.size(), 1u);
  EXPECT_NE(v.problems[0].find("nonexistent.so"), std::string::npos) << v.problems[0];
}

TEST(Kit, TheExamplesAndTheTemplatePass) {
  for (auto* name : {"split", "keep_small", "my_strategy", "plain_exchange"})
    for (auto& check : checks()) {
      const Verdict v = run_apart(check, file_of(name));
      EXPECT_EQ(v.outcome, Outcome::pass) << name << ", " << check.name << ": " << testing::PrintToString(v.problems);
    }
}

Answer ask_for(const std::string& name, const Given& given, std::uint32_t world, ShardingAnswer& plan) {
  FakeHost host;
  const Library library(file_of(name));
  const Instance plugin(library, SHALE_KIND_SHARDING, host, given);
  const FakeModel model;
  const FakeTopology topology(world, 2);
  return ask(plugin, {model, topology}, plan);
}

TEST(Examples, SplitCutsOverNeighbours) {
  ShardingAnswer plan;
  const Answer answer = ask_for("split", {{"ways", "2"}}, 6, plan);
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  const auto& u = *plan.units[1];
  EXPECT_EQ(plan.part(u.shard_group, 3), (std::vector{2u, 3u}));
  EXPECT_EQ(plan.part(u.reshard_group, 3), (std::vector{2u, 3u}));
  EXPECT_EQ(plan.part(u.replica_group, 3), (std::vector{1u, 3u, 5u}));
  EXPECT_EQ(u.replica_at, SHALE_AT_BOUNDARY);
  EXPECT_EQ(plan.units.back()->reshard_group, SHALE_GROUP_SELF);
}

TEST(Examples, SplitNamesTheOptionThatDoesNotDivide) {
  for (auto* name : {"split", "my_strategy"}) {
    const bool template_ = std::string(name) == "my_strategy";
    ShardingAnswer plan;
    const Answer answer = ask_for(name, {{template_ ? "shard_size" : "ways", "4"}}, 6, plan);
    EXPECT_EQ(answer.code, SHALE_BAD_OPTION);
    EXPECT_EQ(answer.where, template_ ? "shard_size" : "ways");
    EXPECT_NE(answer.text.find("must divide the 6 ranks"), std::string::npos) << answer.text;
    EXPECT_NE(answer.text.find("(got 4)"), std::string::npos) << answer.text;
  }
}

TEST(Examples, KeepSmallKeepsSmallUnits) {
  ShardingAnswer plan;
  const Answer answer = ask_for("keep_small", {{"limit", "2000"}}, 2, plan);  // layers have 1968 elements
  ASSERT_EQ(answer.code, 0u) << to_text(answer);
  std::vector<std::uint32_t> kept;
  for (auto& u : plan.units) kept.push_back(u->reshard_group);
  EXPECT_EQ(kept, (std::vector{SHALE_GROUP_WORLD, SHALE_GROUP_SELF, SHALE_GROUP_SELF, SHALE_GROUP_SELF}));
}

TEST(Values, OptionsAreReadAsTheirType) {
  constexpr std::uint32_t size = sizeof(shale_option);
  const shale_option table[] = {
      {size, SHALE_OPT_BOOL, "a", "x", "", "true", nullptr, nullptr, nullptr},
      {size, SHALE_OPT_INT, "b", "x", "", "1_000", nullptr, nullptr, nullptr},
      {size, SHALE_OPT_CHOICE, "c", "x", "", "two", nullptr, nullptr, "one|two|three"},
      {size, SHALE_OPT_BYTES, "d", "x", "", "4GiB", nullptr, nullptr, nullptr},
      {size, SHALE_OPT_SECONDS, "e", "x", "", "5min", nullptr, nullptr, nullptr},
      {size, SHALE_OPT_TEXTS, "f", "x", "", "[\"p\", \"qr\"]", nullptr, nullptr, nullptr},
      {size, SHALE_OPT_FLOAT, "g", "x", "", nullptr, nullptr, nullptr, nullptr},
  };
  SHALE_VAR(shale_desc, d);
  d.id = "values", d.options = table, d.n_options = 7, d.option_stride = size;
  const Values values(d, {{"g", "0.5"}});
  const shale_value* v = values.get()->values;
  EXPECT_EQ(v[0].i, 1);
  EXPECT_EQ(v[1].i, 1000);
  EXPECT_EQ(v[2].i, 1);
  EXPECT_EQ(v[3].i, std::int64_t{4} << 30);
  EXPECT_EQ(v[4].f, 300);
  ASSERT_EQ(v[5].n_list, 2u);
  EXPECT_EQ(std::string(v[5].list[1].ptr, v[5].list[1].len), "qr");
  EXPECT_EQ(v[6].f, 0.5);
  EXPECT_EQ(v[6].is_set, 1u);
  EXPECT_EQ(v[0].is_set, 0u);
  EXPECT_THROW(Values(d, {}), std::invalid_argument);
  EXPECT_THROW(Values(d, {{"g", "0.5"}, {"h", "1"}}), std::invalid_argument);
  EXPECT_THROW(Values(d, {{"g", "many"}}), std::invalid_argument);
  EXPECT_THROW(Values(d, {{"g", "1"}, {"a", "yes"}}), std::invalid_argument);
  EXPECT_THROW(Values(d, {{"g", "1"}, {"c", "four"}}), std::invalid_argument);
  EXPECT_THROW(Values(d, {{"g", "1"}, {"e", "5 fortnights"}}), std::invalid_argument);
}

}  // namespace
}  // namespace shale

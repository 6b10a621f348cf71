// Every built-in plugin passes every case of the conformance kit, each in a child process.
#include <gtest/gtest.h>

#include "checks.h"
#include "plugin_files.h"

namespace shale {
namespace {

class Conformance : public testing::TestWithParam<std::string> {};

TEST_P(Conformance, AllCases) {
  for (auto& check : conform::checks()) {
    const auto verdict = conform::run_apart(check, plugin_file(GetParam()));
    EXPECT_EQ(verdict.outcome, conform::Outcome::pass) << check.name << ": " << check.says;
    for (auto& problem : verdict.problems) ADD_FAILURE() << check.name << ": " << problem;
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, Conformance, testing::ValuesIn(plugin_names()),
                         [](const auto& info) { return info.param; });

TEST(BuiltInPlugins, IdsFollowTheFolderNames) {
  const char* kinds[] = {"", "sharding", "precision", "offload", "checkpoint"};
  for (auto& name : plugin_names()) {
    const conform::FakeHost host;
    const auto* table = conform::Library(plugin_file(name)).table(host);
    ASSERT_EQ(table->n_descs, 1u) << name;
    EXPECT_EQ(std::string(kinds[table->descs[0]->kind]) + "_" + table->descs[0]->id, name);
  }
}

}  // namespace
}  // namespace shale

#include "core/loader/inspect.h"

#include <random>

#include "core/base/hash.h"
#include "core/loader/inspect_json.h"
#include "support.h"

namespace shale {
namespace {

using test::bad;
using test::TempFolder;

TEST(PluginInfo, TellsEverything) {
  const PluginFile file = plugin_info(bad("options"));
  EXPECT_EQ(file.problem, "");
  EXPECT_EQ(file.hash, hash_file(bad("options")));
  EXPECT_EQ(file.abi, "0.1 (runs from 0.1)");
  ASSERT_EQ(file.descriptors.size(), 1u);
  const DescriptorFacts& d = file.descriptors[0];
  EXPECT_EQ(d.kind, "sharding");
  EXPECT_EQ(d.id, "options");
  EXPECT_EQ(d.interfaces, std::vector<std::string>{"shale.sharding/1"});
  EXPECT_EQ(d.capabilities, (std::vector<std::string>{"cpu", "cuda"}));
  ASSERT_EQ(d.options.size(), 10u);
  EXPECT_EQ(d.options[1].range, "1..64 ranks");
  EXPECT_EQ(d.options[4].type, "one of never | always | at_boundary");
  EXPECT_EQ(d.options[6].fallback, "30s");
  EXPECT_EQ(d.options[6].help, "help of wait");
  EXPECT_FALSE(d.options[6].required);
}

struct Case {
  std::string path;
  std::vector<std::string> parts;
};

TEST(PluginInfo, NeverTakesTheToolDown) {
  const TempFolder folder;
  const std::string text = folder.write("text.so", "no library");
  const Case cases[] = {{bad("crashes"), {"crashes when it is opened", "signal 11"}},
                        {bad("exits"), {"ends the process that opens it"}},
                        {bad("null_table"), {"returned no table"}},
                        {bad("unresolved"), {"undefined symbol"}},
                        {bad("needs_collectives"), {"needs the host service shale.collectives/1"}},
                        {text, {"is not a shared library"}},
                        {folder.path() + "/missing.so", {"No such file"}}};
  for (const Case& c : cases) {
    const PluginFile file = plugin_info(c.path);
    test::expect_contains(file.problem, c.parts);
    test::expect_contains(file.problem, {c.path});
  }
  EXPECT_EQ(plugin_info(bad("needs_collectives")).descriptors.size(), 4u);  // shown although it cannot be used
}

TEST(PluginInfo, AFileThatHangsIsStopped) {
  test::expect_contains(plugin_info(bad("hangs"), 0.3).problem, {bad("hangs"), "took longer than 0.3 s"});
}

TEST(PluginInfo, WhatAPluginPrintsDoesNotMatter) {
  const PluginFile file = plugin_info(bad("prints"));
  EXPECT_EQ(file.problem, "");
  EXPECT_EQ(file.descriptors.size(), 4u);
}

TEST(ListPlugins, SearchOrderAndShadows) {
  const TempFolder first, second;
  first.copy(bad("good"), "sharding_good.so"), first.copy(bad("crashes"), "sharding_crash.so");
  first.write("notes.txt", "");
  second.copy(bad("long_table"), "sharding_good.so"), second.copy(bad("options"), "sharding_options.so");
  const auto files = list_plugins({{first.path(), "/nowhere", second.path()}});
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].path, first.path() + "/sharding_crash.so");
  EXPECT_NE(files[0].problem, "");
  EXPECT_EQ(files[1].path, first.path() + "/sharding_good.so");
  EXPECT_FALSE(files[1].shadowed);
  EXPECT_EQ(files[2].path, second.path() + "/sharding_good.so");
  EXPECT_TRUE(files[2].shadowed);
  EXPECT_FALSE(files[3].shadowed);
}

TEST(InspectJson, BothWaysAndDamage) {
  const std::string text = to_json(plugin_info(bad("options")));
  PluginFile back;
  ASSERT_TRUE(from_json(text, back));
  EXPECT_EQ(to_json(back), text);
  std::mt19937 random(13);
  for (int k = 0; k < 3000; ++k) {
    std::string damaged = text.substr(0, random() % 2 ? text.size() : random() % text.size());
    for (int n = 0; n < 3 && !damaged.empty(); ++n) damaged[random() % damaged.size()] = static_cast<char>(random());
    PluginFile ignored;
    (void)from_json(damaged, ignored);
  }
}

}  // namespace
}  // namespace shale

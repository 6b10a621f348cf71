#include "core/loader/find_plugin.h"

#include <unistd.h>

#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::TempFolder;

TEST(FindPlugin, TheFirstFolderWinsAndTheOthersAreKnown) {
  const TempFolder first, second;
  const std::string a = first.write("sharding_mine.so", "a"), b = second.write("sharding_mine.so", "b");
  const std::string c = second.write("precision_mine.so", "c");
  const PluginPaths paths{{first.path(), second.path()}};
  EXPECT_EQ(find_plugin("sharding", "mine", paths), a);
  EXPECT_EQ(passed_over("sharding", "mine", paths), std::vector<std::string>{b});
  EXPECT_EQ(find_plugin("precision", "mine", paths), c);
  EXPECT_TRUE(passed_over("precision", "mine", paths).empty());
}

TEST(FindPlugin, TheSameFileTwiceIsNotPassedOver) {
  const TempFolder first, second;
  const std::string a = first.write("sharding_mine.so", "a");
  std::filesystem::create_symlink(a, second.path() + "/sharding_mine.so");
  EXPECT_TRUE(passed_over("sharding", "mine", {{first.path(), second.path()}}).empty());
  EXPECT_EQ(find_plugin("sharding", "mine", {{second.path()}}), a);
}

TEST(FindPlugin, NotFoundSaysWhereAndWhatIsNear) {
  const TempFolder folder;
  folder.write("sharding_full_shard.so", ""), folder.write("sharding_no_shard.so", ""),
      folder.write("offload_none.so", "");
  const PluginPaths paths{{folder.path(), "/nowhere"}};
  expect_error(Code::config,
               {"no sharding plugin \"full_shart\"", "sharding_full_shart.so", folder.path(), "/nowhere",
                "did you mean \"full_shard\"?", "there are: full_shard, no_shard", "SHALE_PLUGIN_PATH"},
               [&] { find_plugin("sharding", "full_shart", paths); });
  expect_error(Code::config, {"no precision plugin is there at all"},
               [&] { find_plugin("precision", "uniform", paths); });
  expect_error(Code::config, {"as none is given"}, [&] { find_plugin("precision", "uniform", {}); });
}

TEST(FindPlugin, PathsAreTakenAsGiven) {
  const TempFolder folder;
  const std::string file = folder.write("anything.so", "");
  EXPECT_EQ(find_plugin("sharding", file, {}), file);
  EXPECT_EQ(
      find_plugin("sharding",
                  folder.path() + "/../" + folder.path().substr(folder.path().rfind('/') + 1) + "/anything.so", {}),
      file);
  expect_error(Code::config, {"/nowhere/x.so", "No such file"}, [] { find_plugin("sharding", "/nowhere/x.so", {}); });
  expect_error(Code::config, {"relative path", "working directory"}, [] { find_plugin("sharding", "./x.so", {}); });
}

TEST(FindPlugin, TheWorkingDirectoryIsNeverSearched) {
  const TempFolder folder;
  folder.write("sharding_mine.so", "");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const char* name : {"mine", "sharding_mine", "sharding_mine.so"})
    expect_error(Code::config, {"no sharding plugin"},
                 [&] { find_plugin("sharding", name, plugin_paths("/nowhere", {})); });
  expect_error(Code::config, {"SHALE_PLUGIN_PATH", "relative folder \".\""}, [] { plugin_paths("/nowhere", {"."}); });
  std::filesystem::current_path(before);
}

TEST(FindPlugin, StrangeNames) {
  expect_error(Code::config, {"no name of a plugin"}, [] { find_plugin("sharding", "", {}); });
  expect_error(Code::config, {"no name of a plugin"}, [] { find_plugin("sharding", std::string(5000, 'x'), {}); });
  expect_error(Code::config, {"no name of a plugin"}, [] { find_plugin("sharding", std::string("a\0b", 3), {}); });
}

TEST(PluginPaths, InstalledThenBuildTreeThenMore) {
  const TempFolder root;
  std::filesystem::create_directories(root.path() + "/bin/plugins");
  EXPECT_EQ(plugin_paths(root.path() + "/bin", {"/more", "/more/"}).folders,
            (std::vector<std::string>{root.path() + "/bin/plugins", "/more", "/more/"}));
  std::filesystem::create_directories(root.path() + "/lib/shale/plugins");
  EXPECT_EQ(plugin_paths(root.path() + "/bin", {}).folders,
            (std::vector<std::string>{root.path() + "/lib/shale/plugins", root.path() + "/bin/plugins"}));
}

}  // namespace
}  // namespace shale

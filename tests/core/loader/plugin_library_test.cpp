// Every way a plugin file can be wrong before it is asked anything.
#include "core/loader/plugin_library.h"

#include "core/base/hash.h"
#include "support.h"

namespace shale {
namespace {

using test::bad;
using test::expect_error;

struct Case {
  const char* plugin;
  std::vector<std::string> parts;
};

class WrongFile : public testing::TestWithParam<Case> {};

TEST_P(WrongFile, IsRefusedWithItsPathAndTheReason) {
  const std::string path = bad(GetParam().plugin);
  auto parts = GetParam().parts;
  parts.push_back(path);
  expect_error(Code::config, parts, [&] { open_plugin(path); });
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFile,
    testing::Values(
        Case{"no_entry", {"is no shale plugin", "does not export shale_plugin_entry_v1"}},
        Case{"null_table", {"returned no table", "refuses this shale (ABI 0.1)"}},
        Case{"wrong_major",
             {"built for plugin ABI 1.1 and runs from 1.1", "this shale has 0.1", "rebuild it with this shale's sdk"}},
        Case{"needs_newer", {"runs from 0.8", "this shale has 0.1", "needs a newer shale"}},
        Case{"too_old", {"built for plugin ABI 0.0", "takes from 0.1", "too old", "rebuild"}},
        Case{"short_table", {"its table has 40 bytes, shorter than the 48 of ABI 0.1", "broken build"}},
        Case{"no_size", {"its table says it has 0 bytes", "broken build"}},
        Case{"short_desc", {"a descriptor has", "ABI 0.1 has", "broken build"}},
        Case{"null_desc", {"a descriptor has 0 bytes"}}, Case{"no_create", {"lacks create, destroy or get_interface"}},
        Case{"no_descs", {"it has 0 descriptors"}}, Case{"two_of_a_kind", {"two descriptors of kind sharding"}},
        Case{"bad_id", {"calls itself \"not an id\""}}, Case{"bad_version", {"version \"one\", not x.y.z"}},
        Case{"undeclared", {"does not declare shale.sharding/1", "com.example.something/1"}},
        Case{"unresolved", {"cannot be loaded", "undefined symbol: symbol_that_nobody_has", "rebuild"}},
        Case{"throws_entry", {"threw a C++ exception", "thrown in the entry"}}),
    [](const auto& info) { return std::string(info.param.plugin); });

TEST(PluginLibrary, OpensAGoodOneAndALongerTable) {
  for (const char* name : {"good", "long_table", "brings_more", "needs_log"}) {
    const PluginLibrary library = open_plugin(bad(name));
    EXPECT_EQ(library.path, bad(name));
    EXPECT_EQ(library.hash, hash_file(bad(name)));
    ASSERT_EQ(library.descriptors.size(), 4u) << name;
    EXPECT_EQ(library.descriptor("offload").kind, SHALE_KIND_OFFLOAD);
    EXPECT_EQ(library.descriptor("sharding").id, "good");
    EXPECT_EQ(library.descriptor("sharding").version, "1.2.3");
    EXPECT_EQ(library.table.struct_size, sizeof(shale_plugin));
  }
}

TEST(PluginLibrary, ASymbolicLinkIsFollowed) {
  const test::TempFolder folder;
  std::filesystem::create_symlink(bad("good"), folder.path() + "/link.so");
  EXPECT_EQ(open_plugin(folder.path() + "/link.so").path, bad("good"));
}

TEST(PluginLibrary, WhatIsNoLibraryIsRefused) {
  const test::TempFolder folder;
  const std::string whole = test::content_of(bad("good"));
  const std::string text = folder.write("text.so", "hello, this is not a library at all, but a text of some length\n");
  expect_error(Code::config, {text, "is not a shared library"}, [&] { open_plugin(text); });
  const std::string empty = folder.write("empty.so", "");
  expect_error(Code::config, {empty, "it is empty"}, [&] { open_plugin(empty); });
  const std::string cut = folder.write("cut.so", whole.substr(0, 1000));
  expect_error(Code::config, {cut, "cut off", "copy it again"}, [&] { open_plugin(cut); });
  const std::string missing = folder.path() + "/missing.so";
  expect_error(Code::config, {missing, "No such file"}, [&] { open_plugin(missing); });
  expect_error(Code::config, {folder.path(), "is not a file"}, [&] { open_plugin(folder.path()); });
}

TEST(PluginLibrary, AFileWithoutTheKindSaysWhatItIs) {
  expect_error(Code::config, {bad("only_precision"), "is no sharding plugin", "precision good"},
               [] { open_plugin(bad("only_precision")).descriptor("sharding"); });
}

}  // namespace
}  // namespace shale

#include "core/loader/plugins.h"

#include "core/base/hash.h"
#include "support.h"

namespace shale {
namespace {

using test::bad;
using test::expect_error;
using test::good_config;
using test::load;
using test::option;
using test::TempFolder;
using test::with_sharding;

TEST(Plugins, FourOfOneFile) {
  const auto plugins = load(good_config());
  ASSERT_EQ(plugins->loaded().size(), 4u);
  EXPECT_EQ(plugins->loaded()[1].kind, "precision");
  EXPECT_EQ(plugins->loaded()[3].id, "base");
  EXPECT_EQ(plugins->loaded()[3].hash, hash_file(bad("base")));
  EXPECT_EQ(plugins->checkpoint().id(), "base");
  const std::string json = plugins->describe();
  test::expect_contains(json, {"\"kind\": \"offload\"", "\"version\": \"1.2.3\"", hash_file(bad("base"))});
}

struct Case {
  const char* plugin;
  Code code;
  std::vector<std::string> parts;
};
class Refused : public testing::TestWithParam<Case> {};

TEST_P(Refused, NamesPlaceAndPath) {
  auto parts = GetParam().parts;
  parts.push_back(bad(GetParam().plugin));
  parts.push_back("run.toml:2:10: [sharding] ");
  expect_error(GetParam().code, parts, [] { load(with_sharding(GetParam().plugin)); });
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(Case{"wrong_major", Code::config, {"built for plugin ABI 1.1"}},
                    Case{"unresolved", Code::config, {"undefined symbol"}},
                    Case{"only_precision", Code::config, {"is no sharding plugin; it is: precision good"}},
                    Case{"brings_wire", Code::config, {"brings the interface shale.precision.wire/1", "does not call"}},
                    Case{"needs_files",
                         Code::config,
                         {"needs the host service shale.files/1", "does not offer to plugins of kind sharding"}},
                    Case{"lying_interface", Code::config, {"declares the interface shale.sharding/1 but has no table"}},
                    Case{
                        "short_interface", Code::config, {"its table of shale.sharding/1 has 8 bytes, ABI 0.1 has 16"}},
                    Case{"null_plan", Code::config, {"has no plan"}}),
    [](const auto& info) { return std::string(info.param.plugin); });

TEST(Plugins, WhatIsNotThere) {
  Config c = good_config();
  c.sharding.plugin = "/nowhere/libmine.so";
  expect_error(Code::config, {"run.toml:2:10: [sharding]", "/nowhere/libmine.so", "No such file"}, [&] { load(c); });
}

TEST(Plugins, AllErrorsOfAllPluginsAtOnce) {
  Config c = with_sharding("options", {option("shard_size", std::int64_t{99}), option("ratoi", 0.5)});
  c.precision.plugin = "unifrom";
  c.offload.plugin = bad("no_entry");
  c.format.options = {option("anything", true)};
  const TempFolder folder;
  folder.write("precision_uniform.so", "");
  const Error e = test::error_of([&] { load(c, {{folder.path()}}); });
  EXPECT_EQ(e.code(), Code::config);
  test::expect_contains(
      e.what(),
      {"run.toml:12:9: [sharding.options] shard_size must be 1..64 ranks (got 99)",
       "run.toml:12:1: [sharding.options] ratoi is no option of the plugin", "did you mean ratio?",
       "run.toml:5:10: [precision] plugin: there is no precision plugin \"unifrom\"", "did you mean \"uniform\"?",
       "run.toml:8:10: [offload] plugin: " + bad("no_entry") + ": is no shale plugin",
       "run.toml:12:1: [checkpoint.options] anything is no option of the plugin", "it has no options"});
}

TEST(Plugins, AnOptionThatOnlyThePluginCanJudge) {
  expect_error(Code::config, {"run.toml:12:9: [sharding.options] shard_size must divide 8 (got 3)"}, [] {
    load(with_sharding("options", {option("shard_size", std::int64_t{3}), option("fail", std::string("create"))}));
  });
  // The default is to blame: then the plugin's own place is named.
  expect_error(Code::config, {"run.toml:2:10: [sharding.options] shard_size must divide 8 (got 8)"},
               [] { load(with_sharding("options", {option("fail", std::string("create"))})); });
  const auto plugins =
      load(with_sharding("options", {option("shard_size", std::int64_t{3}), option("fail", std::string("plan"))}));
  expect_error(Code::config, {"run.toml:12:9: [sharding.options] shard_size must divide 4 (got 3)"},
               [&] { plugins->sharding().plan(test::small_model(), test::topology_of(4, 2)); });
}

TEST(Plugins, OtherErrorsOfCreateAndPlan) {
  expect_error(Code::io, {"[sharding] options: create: a table: of 12 bytes"},
               [] { load(with_sharding("options", {option("fail", std::string("create_other"))})); });
  const auto plugins = load(with_sharding("options", {option("fail", std::string("plan_other"))}));
  expect_error(Code::numeric, {"[sharding] options: plan: layer 3: is not finite"},
               [&] { plugins->sharding().plan(test::small_model(), test::topology_of(4, 2)); });
}

TEST(Plugins, ThrownExceptionsBecomeErrors) {
  const auto at = [](const char* where) { return with_sharding("throws", {option("at", std::string(where))}); };
  expect_error(Code::config, {"run.toml:2:10", bad("throws"), "create threw a C++ exception", "thrown in create"},
               [&] { load(at("create")); });
  expect_error(Code::config, {bad("throws"), "get_interface threw", "thrown in get_interface"},
               [&] { load(at("interface")); });
  {
    const auto plugins = load(at("plan"));  // destroy throws too
    expect_error(Code::config, {bad("throws"), "plan threw", "thrown in plan"},
                 [&] { plugins->sharding().plan(test::small_model(), test::topology_of(2, 2)); });
  }
  const auto plugins = load(at("int"));
  expect_error(Code::config, {"plan threw a C++ exception (of unknown type)"},
               [&] { plugins->sharding().plan(test::small_model(), test::topology_of(2, 2)); });
}

TEST(Plugins, ANameMustBeTheId) {
  const TempFolder folder;
  folder.copy(bad("other_id"), "sharding_mine.so");
  Config c = good_config();
  c.sharding.plugin = "mine";
  expect_error(Code::config,
               {folder.path() + "/sharding_mine.so", "calls itself \"other\", not \"mine\"", "run.toml:2:10"},
               [&] { load(c, {{folder.path()}}); });
  folder.copy(bad("other_id"), "sharding_other.so");
  c.sharding.plugin = "other";
  EXPECT_EQ(load(c, {{folder.path()}})->loaded()[0].path, folder.path() + "/sharding_other.so");
}

TEST(Plugins, TheFirstOfTwoFilesWithOneNameIsTakenAndTheOtherMentioned) {
  const TempFolder first, second;
  first.copy(bad("good"), "sharding_good.so");
  second.copy(bad("long_table"), "sharding_good.so");
  Config c = good_config();
  c.sharding.plugin = "good";
  const Log log(0);
  testing::internal::CaptureStderr();
  const auto plugins = load_plugins(c, {{first.path(), second.path()}}, log);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(plugins->loaded()[0].path, first.path() + "/sharding_good.so");
  test::expect_contains(printed, {"passed over: " + second.path() + "/sharding_good.so"});
}

TEST(Plugins, TwoFilesWithOneIdInOneRunAreRefused) {
  Config c = good_config();
  c.sharding.plugin = bad("twin_sharding"), c.precision.plugin = bad("twin_precision");
  expect_error(
      Code::config,
      {"run.toml:5:10: [precision]", bad("twin_sharding"), bad("twin_precision"), "both call themselves \"twin\""},
      [&] { load(c); });
}

TEST(Plugins, ALaterInterfaceBesideOursIsFine) {
  EXPECT_EQ(load(with_sharding("needs_collectives"))->loaded()[0].id, "good");
  EXPECT_EQ(load(with_sharding("brings_more"))->loaded()[0].id, "good");
}

TEST(Plugins, OneFormatOnItsOwn) {
  const Log log(1);
  EXPECT_EQ(load_format(bad("format"), {}, log)->id(), "format");
  expect_error(Code::config, {"format \"nothing\": ", "no checkpoint plugin \"nothing\""},
               [&] { load_format("nothing", {}, log); });
}

}  // namespace
}  // namespace shale

#include "core/config/config.h"

#include <algorithm>

#include "core/config/schema.h"
#include "tests/core/config/config_files.h"

namespace shale {
namespace {

using ConfigTest = ConfigFiles;

TEST_F(ConfigTest, EmptyFileGivesTheDefaults) {
  const Config config = read("");
  EXPECT_EQ(config.training.steps, 10000);
  EXPECT_EQ(config.sharding.plugin, "full_shard");
  EXPECT_EQ(config.origin("training.steps").text, "default");
  EXPECT_TRUE(config.plugin_path.empty());
  EXPECT_EQ(config.scratch_dir, "/tmp");
  EXPECT_EQ(config.hash.size(), 32u);
}

TEST_F(ConfigTest, EveryKindOfValue) {
  const Config config = read(R"(
[training]
steps = 1_000
dataset_path = 'a b\c'
shuffle = false
max_norm = 2   # an integer where a number is wanted
[optimizer]
lr = 3e-4
[model]
frozen = ["embedding*", "model.layers.0.*"]
[sharding]
plugin = "hybrid_shard"
[sharding.options]
shard_size = 4
ratio = 0.5
deep = true
names = ["a", "b"]
mode = "x"
)");
  EXPECT_EQ(config.training.steps, 1000);
  EXPECT_EQ(config.training.dataset_path, "a b\\c");
  EXPECT_FALSE(config.training.shuffle);
  EXPECT_EQ(config.training.max_norm, 2.0);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.model.frozen, (std::vector<std::string>{"embedding*", "model.layers.0.*"}));
  EXPECT_EQ(short_text(config.origin("training.steps").text), "run.toml:3:9");
  EXPECT_EQ(short_text(config.sharding.origin.text), "run.toml:12:10");
  ASSERT_EQ(config.sharding.options.size(), 5u);
  const RawOption& last = config.sharding.options.back();
  EXPECT_EQ(last.key, "shard_size");
  EXPECT_EQ(std::get<std::int64_t>(last.value), 4);
  EXPECT_EQ(short_text(last.key_origin.text), "run.toml:14:1");
  EXPECT_EQ(short_text(last.value_origin.text), "run.toml:14:14");
}

TEST_F(ConfigTest, CommandLineBeatsEnvironmentBeatsFile) {
  const std::string text = "[training]\nsteps = 10\nseq_len = 10\nlocal_batch_size = 2\n[debug]\nseed = 1\n";
  const Environment environment{{"SHALE_TRAINING_SEQ_LEN", "20"}, {"SHALE_DEBUG_SEED", "20"}, {"HOME", "/"}};
  const Config config = read(text, {{"debug.seed", "29"}, {"debug.seed", "30"}}, environment);
  EXPECT_EQ(config.training.steps, 10);
  EXPECT_EQ(config.training.seq_len, 20);
  EXPECT_EQ(config.debug.seed, 30);
  EXPECT_EQ(config.origin("training.seq_len").text, "SHALE_TRAINING_SEQ_LEN");
  EXPECT_EQ(config.origin("debug.seed").text, "--debug.seed");
  EXPECT_EQ(config.origin("training.max_norm").text, "default");
}

TEST_F(ConfigTest, OverridesOfEveryType) {
  const Config config = read("", {{"training.shuffle", "false"},
                                  {"optimizer.lr", "1e-3"},
                                  {"training.dataset_path", "a=b"},
                                  {"model.frozen", "a*, b*"},
                                  {"comm.init_timeout_seconds", "7"}});
  EXPECT_FALSE(config.training.shuffle);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.training.dataset_path, "a=b");
  EXPECT_EQ(config.model.frozen, (std::vector<std::string>{"a*", "b*"}));
  EXPECT_EQ(config.comm.init_timeout_seconds, 7);
  EXPECT_EQ(read("", {{"model.frozen", R"(["a*", 'b,'])"}}).model.frozen.size(), 3u);  // no commas inside, documented
  EXPECT_EQ(read("", {{"model.frozen", R"(["a*"])"}}).model.frozen, std::vector<std::string>{"a*"});
  EXPECT_TRUE(read("[model]\nfrozen = ['x']", {{"model.frozen", ""}}).model.frozen.empty());
}

TEST_F(ConfigTest, PluginOptionsFromEverywhere) {
  const Environment environment{{"SHALE_SHARDING_OPTIONS_SHARD_SIZE", "8"}, {"SHALE_OFFLOAD_OPTIONS_PATH", "/x"}};
  const Config config = read("[sharding.options]\nshard_size = 4\n",
                             {{"precision.options.dtype", "float64"},
                              {"precision.options.deep", "true"},
                              {"precision.options.ratio", "1e-3"},
                              {"precision.options.text", "\"4\""},
                              {"checkpoint.options.names", "[a, b]"}},
                             environment);
  ASSERT_EQ(config.sharding.options.size(), 1u);
  EXPECT_EQ(config.sharding.options[0].value, RawValue(std::int64_t{8}));
  EXPECT_EQ(config.sharding.options[0].value_origin.text, "SHALE_SHARDING_OPTIONS_SHARD_SIZE");
  ASSERT_EQ(config.precision.options.size(), 4u);
  EXPECT_EQ(config.precision.options[0].value, RawValue(true));
  EXPECT_EQ(config.precision.options[1].value, RawValue(std::string("float64")));
  EXPECT_EQ(config.precision.options[2].value, RawValue(1e-3));
  EXPECT_EQ(config.precision.options[3].value, RawValue(std::string("4")));
  EXPECT_EQ(config.format.options.at(0).value, RawValue(std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.offload.options.at(0).value, RawValue(std::string("/x")));
}

TEST_F(ConfigTest, PluginPathsStandBesideTheFile) {
  const Config config = read("[sharding]\nplugin = \"./build/../x.so\"\n[precision]\nplugin = \"/lib/y.so\"\n",
                             {{"offload.plugin", "sub/z.so"}});
  EXPECT_EQ(config.sharding.plugin, (folder_ / "x.so").string());
  EXPECT_EQ(config.precision.plugin, "/lib/y.so");
  EXPECT_EQ(config.offload.plugin, (folder_ / "sub/z.so").string());
  EXPECT_EQ(config.format.plugin, "sharded");
}

TEST_F(ConfigTest, ByteOrderMarkAndWindowsLineEndsC29) {
  const std::string text = "[training]\nsteps = 10\ndataset_path = \"a\"\n[job]\ndescription = \"\"\"x\ny\"\"\"\n";
  std::string windows = "\xEF\xBB\xBF";
  for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const Config plain = read(text), other = read(windows);
  EXPECT_EQ(plain.text, other.text);
  EXPECT_EQ(other.job.description, "x\ny");
  EXPECT_EQ(other.text.find('\r'), std::string::npos);
  EXPECT_EQ(other.origin("training.steps").text, plain.origin("training.steps").text);
}

TEST_F(ConfigTest, ResolvedTextReadsBackToTheSame) {
  const Config config = read(R"(
[job]
description = "quote \" backslash \\ tab \t bell \u0007 del \u007f umlaut ä"
[optimizer]
lr = 0.1
eps = 1e-30
[training]
local_batch_size = 2
epochs = 3
[lr_scheduler]
decay_type = "cosine"
[sharding]
plugin = "./x.so"
[sharding.options]
"odd key" = "v"
x = 1.0
y = [ ]
z = -9223372036854775808
)");
  const Config again = read(config.text);
  EXPECT_EQ(again.text, config.text);
  EXPECT_EQ(again.hash, config.hash);
  EXPECT_EQ(again.sharding.plugin, config.sharding.plugin);
  ASSERT_EQ(again.sharding.options.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(again.sharding.options[i].value, config.sharding.options[i].value);
  EXPECT_EQ(again.job.description, config.job.description);
  EXPECT_EQ(again.training.epochs, 3);
  EXPECT_EQ(read(print_config(config)).text, config.text);
  EXPECT_NE(read(config.text, {{"debug.seed", "2"}}).hash, config.hash);
}

TEST_F(ConfigTest, EveryKeyReadsBackAndIsInTheHelp) {
  const std::string help = config_help();
  for (const Key& key : keys()) {
    Config defaults;
    const std::string text = read("").text;
    EXPECT_NE(text.find(str("\n", key.name, " = ")), std::string::npos) << key.path();
    EXPECT_NE(help.find(str("  ", key.name, " = ")), std::string::npos) << key.path();
    EXPECT_FALSE(key.help.empty()) << key.path();
  }
}

TEST_F(ConfigTest, VariablesOfKeysAreUnambiguous) {
  std::vector<std::string> variables;
  for (const Key& key : keys()) variables.push_back(variable_of(key.path()));
  std::ranges::sort(variables);
  EXPECT_EQ(std::ranges::adjacent_find(variables), variables.end());
  EXPECT_EQ(variable_of("lr_scheduler.warmup_steps"), "SHALE_LR_SCHEDULER_WARMUP_STEPS");
}

TEST_F(ConfigTest, PrintConfigNamesOrigins) {
  const std::string text = short_text(
      print_config(read("[training]\nsteps = 10\n", {{"debug.seed", "3"}}, {{"SHALE_OPTIMIZER_LR", "0.5"}})));
  EXPECT_NE(text.find("steps = 10  # run.toml:2:9\n"), std::string::npos) << text;
  EXPECT_NE(text.find("seed = 3  # --debug.seed\n"), std::string::npos);
  EXPECT_NE(text.find("lr = 0.5  # SHALE_OPTIMIZER_LR\n"), std::string::npos);
  EXPECT_NE(text.find("seq_len = 2048  # default\n"), std::string::npos);
}

TEST_F(ConfigTest, PluginPathAndScratch) {
  const Config config = read("", {}, {{"SHALE_PLUGIN_PATH", "/a::/b"}, {"TMPDIR", "/scratch"}, {"SHALE_CACHE", "/c"}});
  EXPECT_EQ(config.plugin_path, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(config.scratch_dir, "/scratch");
}

TEST_F(ConfigTest, DefaultWarmUpFitsAShortRun) {
  EXPECT_EQ(read("[training]\nsteps = 50\n").lr_scheduler.warmup_steps, 5);
  EXPECT_EQ(read("[training]\nsteps = 500\n").lr_scheduler.warmup_steps, 200);
  EXPECT_EQ(read("[training]\nsteps = 50\n[lr_scheduler]\nwarmup_steps = 50\n").lr_scheduler.warmup_steps, 50);
}

TEST_F(ConfigTest, MicroStepsFollowFromTheBatchC17) {
  const Config config = read("[training]\nglobal_batch_size = 8\nlocal_batch_size = 2\n", {}, {}, 2);
  EXPECT_EQ(micro_steps(config, 2), 2);
  EXPECT_EQ(micro_steps(config, 1), 4);
  EXPECT_EQ(micro_steps(read("[training]\nlocal_batch_size = 2\n", {}, {}, 2), 2), 1);
}

}  // namespace
}  // namespace shale

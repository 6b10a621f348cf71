// Every bad file and the line it is answered with.
#include <random>

#include "core/config/toml_file.h"
#include "tests/core/config/config_files.h"

namespace shale {
namespace {

using ConfigErrorTest = ConfigFiles;

TEST_F(ConfigErrorTest, UnknownNamesC12) {
  EXPECT_EQ(error("[training]\nstpes = 5\n"), "run.toml:2:1: [training] stpes is not a key; did you mean steps?");
  EXPECT_EQ(error("[training]\nseq-len = 5\n"), "run.toml:2:1: [training] seq-len is not a key; did you mean seq_len?");
  EXPECT_EQ(error("[training]\nlr = 5\n"),
            "run.toml:2:1: [training] lr is not a key of this section; it belongs to [optimizer]");
  EXPECT_EQ(error("[trainig]\nsteps = 5\n"), "run.toml:1:2: [trainig] is not a section; did you mean [training]?");
  EXPECT_EQ(error("steps = 5\n"),
            "run.toml:1:1: steps stands outside of its section; it belongs to [training] or "
            "[validation]");
  EXPECT_EQ(error("[optimizer]\nlerning_rate = 1\n").find("run.toml:2:1: [optimizer] lerning_rate is not a key"), 0u);
  EXPECT_EQ(error("[sharding]\nshard_size = 4\n"),
            "run.toml:2:1: [sharding] shard_size is not a key; options of the plugin belong to [sharding.options]");
  EXPECT_EQ(error("[training.options]\nx = 4\n"),
            "run.toml:1:11: [training] options is not a key of this section; only kinds of plugins have it");
  EXPECT_EQ(error("[parallelism]\ntensor_parallel_degree = 1\n"),
            "run.toml:1:2: [parallelism] is not a section; sharding is chosen by [sharding] plugin and "
            "[sharding.options]");
  EXPECT_NE(error("[zzz]\n").find("the sections are job, model"), std::string::npos);
  EXPECT_NE(error("[debug]\nqqqqqqqq = 1\n").find("the keys are seed"), std::string::npos);
}

TEST_F(ConfigErrorTest, WrongTypes) {
  EXPECT_EQ(error("[training]\nsteps = \"5\"\n"),
            "run.toml:2:9: [training] steps must be an integer (got a string, \"5\")");
  EXPECT_EQ(error("[training]\nsteps = 5.0\n"),
            "run.toml:2:9: [training] steps must be an integer (got a number with a fraction, 5.0)");
  EXPECT_EQ(error("[training]\nshuffle = 1\n"),
            "run.toml:2:11: [training] shuffle must be true or false (got an integer, 1)");
  EXPECT_EQ(error("[training.steps]\nx = 1\n"), "run.toml:1:11: [training] steps must be an integer (got a table)");
  EXPECT_EQ(error("[[training]]\n"), "run.toml:1:1: [training] must be a table (got a list of tables)");
  EXPECT_EQ(error("training = 3\n"), "run.toml:1:12: [training] must be a table (got an integer)");
  EXPECT_EQ(error("[model]\nfrozen = [1]\n"), "run.toml:2:10: [model] frozen must be a list of strings (got a list)");
  EXPECT_EQ(error("[debug]\nseed = 2020-01-01\n"),
            "run.toml:2:8: [debug] seed must be an integer (got a date or time)");
  EXPECT_NE(error("[sharding.options]\nx = [1, 2]\n").find("[sharding.options] x must be true or false, a number"),
            std::string::npos);
  EXPECT_EQ(error("[sharding]\noptions = 3\n"), "run.toml:2:11: [sharding.options] must be a table (got an integer)");
}

TEST_F(ConfigErrorTest, RangesAndChoices) {
  EXPECT_EQ(error("[training]\nsteps = 0\n").find("run.toml:2:9: [training] steps must be at least 1"), 0u);
  EXPECT_EQ(error("[training]\nlocal_batch_size = -2\n"),
            "run.toml:2:20: [training] local_batch_size must be at least 1 and at most 1000000 (got -2)");
  EXPECT_NE(error("[training]\nglobal_batch_size = 0\n").find(", or -1 (got 0)"), std::string::npos);
  EXPECT_EQ(error("[optimizer]\nlr = nan\n"), "run.toml:2:6: [optimizer] lr must be at least 0 (got nan)");
  EXPECT_EQ(error("[optimizer]\neps = 0\n"), "run.toml:2:7: [optimizer] eps must be above 0 (got 0.0)");
  EXPECT_EQ(error("[optimizer]\nlr = inf\n"), "run.toml:2:6: [optimizer] lr must be at least 0 (got inf)");
  EXPECT_EQ(error("[lr_scheduler]\ndecay_type = \"cosin\"\n"),
            "run.toml:2:14: [lr_scheduler] decay_type must be one of linear | cosine | sqrt (got \"cosin\"); did you "
            "mean cosine?");
  EXPECT_EQ(error("[training]\ndevice = \"tpu9\"\n"),
            "run.toml:2:10: [training] device must be one of cpu | cuda (got \"tpu9\")");
  EXPECT_EQ(error("[model]\nflavor = \"a\\u0000b\"\n"), "run.toml:2:10: [model] flavor must not hold a NUL character");
  EXPECT_NE(error("[sharding]\nplugin = \"x.so\"\n").find("must be a name or a path with a slash"), std::string::npos);
  EXPECT_NE(error("[sharding]\nplugin = \"\"\n").find("must be a name or a path"), std::string::npos);
}

TEST_F(ConfigErrorTest, AllAtOnceInTheOrderOfTheFile) {
  const std::string text =
      error("[training]\nzteps = 1\nseq_len = 0\nglobal_batch_size = 9\n[nowhere]\n[debug]\nsed = 1",
            {{"training.stepz", "1"}}, {{"SHALE_DEBUG_SEEED", "1"}}, 2);
  EXPECT_EQ(
      text,
      "7 errors in the configuration:\n"
      "  run.toml:2:1: [training] zteps is not a key; did you mean steps?\n"
      "  run.toml:3:11: [training] seq_len must be at least 1 and at most 100000000 (got 0)\n"
      "  run.toml:5:2: [nowhere] is not a section; the sections are job, model, optimizer, lr_scheduler, training, "
      "validation, checkpoint, activation_checkpoint, comm, metrics, debug, sharding, precision, offload\n"
      "  run.toml:7:1: [debug] sed is not a key; did you mean seed?\n"
      "  SHALE_DEBUG_SEEED: is not a variable of shale; did you mean SHALE_DEBUG_SEED?\n"
      "  --training.stepz: [training] stepz is not a key; did you mean steps?\n"
      "  run.toml:4:21: [training] global_batch_size 9 is not a multiple of local_batch_size 8 x 2 ranks = 16");
}

TEST_F(ConfigErrorTest, AMisspeltKeyIsNotBlamedTwice) {
  const std::string text = error("[training]\nglobal_batch_size = 6\nlocal_batchsize = 2\n", {}, {}, 3);
  EXPECT_EQ(text, "run.toml:3:1: [training] local_batchsize is not a key; did you mean local_batch_size?");
}

TEST_F(ConfigErrorTest, BatchMustDivideC17) {
  const std::string text = "[training]\nlocal_batch_size = 2\nglobal_batch_size = 8\n";
  EXPECT_EQ(error(text, {}, {}, 2), "");
  EXPECT_EQ(error(text, {}, {}, 0), "");
  EXPECT_EQ(error(text, {}, {}, 3),
            "run.toml:3:21: [training] global_batch_size 8 is not a multiple of local_batch_size 2 x 3 ranks = 6");
  EXPECT_EQ(error("[training]\nlocal_batch_size = 3\nglobal_batch_size = 8\n"),
            "run.toml:3:21: [training] global_batch_size 8 is not a multiple of local_batch_size 3");
}

TEST_F(ConfigErrorTest, MicroStepsAreBounded) {
  EXPECT_EQ(error("[training]\nlocal_batch_size = 1\nglobal_batch_size = 1000000000000\n"),
            "run.toml:3:21: [training] global_batch_size 1000000000000 makes 1000000000000 micro-steps of "
            "local_batch_size 1; at most 1000000 are possible");
}

TEST_F(ConfigErrorTest, DataMustBeNamed) {
  EXPECT_EQ(error("[training]\nsteps = 1  # no dataset_path\n"),
            "run.toml: [training] dataset_path is not set; name the file or folder to train on");
  EXPECT_EQ(error("[training]\ndataset_path = \"\"\n").find("run.toml:2:16: [training] dataset_path is not set"), 0u);
}

TEST_F(ConfigErrorTest, ValidationTakesAsManySequencesAsAStep) {
  const std::string text =
      "[training]\nlocal_batch_size = 2\nglobal_batch_size = 12\n"
      "[validation]\nenable = true\ndataset_path = \"x\"\nlocal_batch_size = 3\n";
  const Environment data{{"SHALE_TRAINING_DATASET_PATH", "tokens.bin"}};
  EXPECT_EQ(error(text, {}, data, 1), "");
  EXPECT_EQ(error(text, {}, data, 2), "");
  EXPECT_EQ(error(text, {}, data, 3),
            "run.toml:7:20: [validation] local_batch_size 3 does not divide the 4 sequences that a rank has in a step");
}

TEST_F(ConfigErrorTest, ImpossibleCombinations) {
  EXPECT_EQ(error("[training]\nsteps = 5\nepochs = 2\n"),
            "run.toml:3:10: [training] epochs 2 and steps 5 (run.toml:2:9) are both given; leave one out");
  EXPECT_EQ(error("[training]\nsteps = 5\nepochs = 0\n"), "");
  EXPECT_EQ(error("[training]\nsteps = 5\n[lr_scheduler]\nwarmup_steps = 6\n"),
            "run.toml:4:16: [lr_scheduler] warmup_steps 6 is longer than the whole schedule of 5 steps");
  EXPECT_EQ(error("[training]\nsteps = 10\n[lr_scheduler]\nwarmup_steps = 6\ndecay_ratio = 0.5\n"),
            "run.toml:5:15: [lr_scheduler] warmup_steps 6 and decay_ratio 0.5 (5 steps) are together longer than the "
            "schedule of 10 steps");
  EXPECT_EQ(error("[validation]\nenable = true\n"),
            "run.toml:2:10: [validation] enable needs dataset_path, which is not set");
  EXPECT_NE(error("[checkpoint]\nresume = \"a\"\ninitial_load_path = \"b\"\n").find("leave one out"),
            std::string::npos);
  EXPECT_EQ(error("[checkpoint]\nresume = \"auto\"\ninitial_load_path = \"b\"\n"), "");
  EXPECT_NE(error("[job]\ndump_folder = \"\"\n").find("run.toml:2:15: job.dump_folder must name a folder"),
            std::string::npos);
}

TEST_F(ConfigErrorTest, SyntaxAndDuplicates) {
  EXPECT_EQ(error("[training]\nsteps = \n").find("run.toml:2:"), 0u);
  EXPECT_EQ(error("[training]\nsteps = 1\nsteps = 2\n").find("run.toml:3:"), 0u);
  EXPECT_EQ(error("[training]\nsteps = 1\n[training]\nseq_len = 2\n").find("run.toml:3:"), 0u);
  EXPECT_EQ(error("[training").find("run.toml:1:"), 0u);
}

TEST_F(ConfigErrorTest, FilesThatAreNoConfiguration) {
  EXPECT_EQ(error(std::string("\xFF\xFE[\0j\0", 6)), "run.toml: is UTF-16 text; save it as UTF-8");
  EXPECT_EQ(error(std::string("[\0j\0o\0b\0]\0", 10)), "run.toml: is UTF-16 text; save it as UTF-8");
  EXPECT_EQ(error("[job]\ndescription = \"\xC0\xAF\"\n"), "run.toml:2: is not UTF-8 text; save it as UTF-8");
  EXPECT_NE(error(std::string(2 << 20, '\n')).find("bytes, a configuration has at most"), std::string::npos);
  EXPECT_NE(error("x = " + std::string(5000, '[')).find("run.toml:1:"), std::string::npos);
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_NE(error(deep + " = 1\n").find("more than 64 dots"), std::string::npos);
  for (const std::string& path : {str(folder_.string(), "/nowhere.toml"), folder_.string(), std::string("/dev/null")}) {
    try {
      read_config(path, {}, 0, {});
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::config);
      EXPECT_EQ(std::string(error.what()).find(path + ": "), 0u) << error.what();
    }
  }
}

TEST_F(ConfigErrorTest, OverridesAndVariables) {
  EXPECT_EQ(error("", {{"trainig.steps", "1"}}),
            "--trainig.steps: [trainig] is not a section; did you mean [training]?");
  EXPECT_EQ(error("", {{"training.steps", "1.5"}}),
            "--training.steps: [training] steps must be an integer (got \"1.5\")");
  EXPECT_EQ(error("", {{"training.steps", ""}}), "--training.steps: [training] steps must be an integer (got \"\")");
  EXPECT_EQ(error("", {{"training", "1"}}), "--training: names no key; write --training.key=value");
  EXPECT_EQ(error("", {{"steps", "1"}}),
            "--steps: steps stands outside of its section; it belongs to [training] or [validation]");
  EXPECT_NE(error("", {{"sharding.options.", "1"}}).find("--sharding.options.: "), std::string::npos);
  EXPECT_NE(error("", {{"training.options.x", "1"}}), "");
  EXPECT_NE(error("", {{"job.description", "\xFF"}}).find("is not UTF-8 text"), std::string::npos);
  EXPECT_EQ(error("", {}, {{"SHALE_TRAINING_STEPS", "x"}}),
            "SHALE_TRAINING_STEPS: [training] steps must be an integer (got \"x\")");
  EXPECT_EQ(error("", {}, {{"SHALE_TRAINING_STEPS", ""}}), "");
  EXPECT_EQ(error("", {}, {{"SHALE_QQQQQQQQQQQQQQ", "1"}}),
            "SHALE_QQQQQQQQQQQQQQ: is not a variable of shale; unset it");
  EXPECT_EQ(error("", {}, {{"SHALE_PLUGIN_PATH", "lib:/b"}}), "SHALE_PLUGIN_PATH: lib must be an absolute path");
  EXPECT_EQ(error("", {}, {{"SHALE_TEST_X", "1"}, {"NOT_SHALE", "1"}}), "");
}

// Mutations of a good file: each ends in a Config that reads back to itself, or in an Error{config}.
TEST_F(ConfigErrorTest, FuzzTheReader) {
  const std::string good =
      "# c\n[training]\nsteps = 10\nseq_len = 0x10\ndataset_path = \"a\\tb\"\nmax_norm = 1.5e0\n[model]\nfrozen = "
      "[\"a\", 'b']\n[sharding]\nplugin = \"./x.so\"\noptions = { a = 1, b.c = true }\n[precision.options]\nd = "
      "1979-05-27\n[job]\ndescription = \"\"\"\nx\n\"\"\"\n";
  static constexpr std::string_view kBytes = "[]{}\"'\\.=,#\n\r\t 0_-eE\xEF\xBB\xBF\x00\xFF";
  std::mt19937_64 random(20260101);
  int fine = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    const std::uint64_t edits = 1 + random() % 6;
    for (std::uint64_t n = 0; n < edits && !text.empty(); ++n) {
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, kBytes[random() % kBytes.size()]);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    try {
      const Config config = read(text);
      ASSERT_EQ(read(config.text).text, config.text);
      ++fine;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::config) << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(fine, 10);
}

TEST(ValidUtf8, KnowsTheBoundaries) {
  const auto good = [](std::string_view text) { return valid_utf8(text) == text.size(); };
  EXPECT_TRUE(good("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (const char* bad : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xE2\x82", "\xC3"}) {
    EXPECT_FALSE(good(bad));
  }
}

}  // namespace
}  // namespace shale

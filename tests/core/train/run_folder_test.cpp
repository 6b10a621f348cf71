// C15: a run never begins where it was told to go on, nor goes on where it was told to begin.
#include "core/train/run_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"
#include "tests/core/base/error_text.h"
#include "tests/core/checkpoint/support.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    config.job.dump_folder = folder / "run";
    config.origins = {{"checkpoint.resume", {"run.toml:7:1"}}, {"job.dump_folder", {"run.toml:3:1"}}};
  }

  // A run that got to its last step and saved those.
  void earlier_run(const std::vector<std::uint64_t>& steps, const std::string& name = "run") {
    const auto path = folder / name;
    fs::create_directories(path + "/checkpoints");
    for (auto step : steps) test::save(path + "/checkpoints", step, 1, format, step);
    for (auto file : {"metrics.jsonl", "config.toml", "plugins.json"}) test::write_file(path + "/" + file, "old\n");
  }

  std::string snapshot(std::uint64_t step, const std::string& name = "run") const {
    return folder / (name + "/checkpoints/" + step_name(step));
  }

  // What each of two ranks decides; they must agree. Then rank 0 deletes what is given up.
  std::string resumed_from() {
    std::vector<RunFolder> found(2);
    const auto errors = test::run_ranks(2, [&](Group& g) { found[g.rank()] = open_run_folder(g, config); });
    EXPECT_EQ(errors, std::vector<std::string>(2));
    for (auto& f : found) {
      EXPECT_EQ(f.path, folder / "run");
      EXPECT_EQ(f.checkpoints, folder / "run/checkpoints");
      EXPECT_EQ(f.resume_from, found[0].resume_from);
    }
    EXPECT_THAT(found[1].doomed, IsEmpty());
    for (auto& path : found[0].doomed) EXPECT_TRUE(fs::exists(path)) << "nothing goes before the new run stands";
    delete_doomed(found[0]);
    return found[0].resume_from;
  }

  std::string refusal(Code code) {
    std::vector<std::string> texts(2);
    test::run_ranks(2, [&](Group& g) { texts[g.rank()] = error_text(code, [&] { open_run_folder(g, config); }); });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  }

  test::TempFolder folder;
  test::PlainFormat format;
  Config config;
};

TEST_F(RunFolderTest, ANewRunMakesItsFolder) {
  EXPECT_EQ(resumed_from(), "");
  EXPECT_TRUE(fs::is_directory(folder / "run"));
}

TEST_F(RunFolderTest, AFolderWithoutARunIsFineAndKept) {
  fs::create_directories(folder / "run/checkpoints");
  test::write_file(folder / "run/notes.txt", "mine");
  EXPECT_EQ(resumed_from(), "");
  EXPECT_EQ(test::read_file(folder / "run/notes.txt"), "mine");
}

TEST_F(RunFolderTest, AMistypedSnapshotIsRefusedBeforeAnythingIsMade) {
  for (auto wrong : {"run/checkpoints/step-00000011", "rum", "other.txt", ""}) {
    test::write_file(folder / "other.txt", "no snapshot");
    config.checkpoint.resume = folder / wrong;
    const auto text = refusal(Code::checkpoint);
    EXPECT_THAT(text, HasSubstr("run.toml:7:1: [checkpoint] resume = \"" + folder / wrong));
    EXPECT_THAT(text, HasSubstr("is not a complete snapshot; give a step-... folder, or \"auto\""));
    EXPECT_FALSE(fs::exists(folder / "run"));
  }
}

TEST_F(RunFolderTest, AutoBeginsWhereThereIsNothing) {
  config.checkpoint.resume = "auto";
  EXPECT_EQ(resumed_from(), "");
  earlier_run({});  // it ended before its first snapshot
  EXPECT_EQ(resumed_from(), "");
}

TEST_F(RunFolderTest, AutoTakesTheNewestSnapshotAndSkipsOneThatWasNeverComplete) {
  earlier_run({8, 9, 10});
  config.checkpoint.resume = "auto";
  EXPECT_EQ(resumed_from(), snapshot(10));
  fs::create_directories(folder / "run/checkpoints/.saving-00000011");
  fs::create_directories(folder / "run/checkpoints/step-12");  // somebody else's
  EXPECT_EQ(resumed_from(), snapshot(10));
}

// A complete snapshot that was damaged later must not cost the steps since the one before without a word.
TEST_F(RunFolderTest, AutoRefusesToPassOverADamagedSnapshot) {
  earlier_run({8, 9, 10});
  config.checkpoint.resume = "auto";
  fs::remove(snapshot(10) + "/manifest.json");
  const auto text = refusal(Code::checkpoint);
  EXPECT_THAT(text, HasSubstr("run.toml:7:1: [checkpoint] resume = \"auto\": " + snapshot(10) + " is newer"));
  EXPECT_THAT(text, HasSubstr("move it away to go on from " + snapshot(9)));
  fs::remove_all(snapshot(10));
  EXPECT_EQ(resumed_from(), snapshot(9));
}

TEST_F(RunFolderTest, AnEarlierRunIsNotMixedWithANewOne) {
  earlier_run({10});
  const auto text = refusal(Code::config);
  EXPECT_THAT(text, HasSubstr("run.toml:3:1: [job] dump_folder " + folder / "run" + " holds an earlier run"));
  EXPECT_THAT(text, HasSubstr("checkpoint.resume = \"auto\""));
  EXPECT_THAT(text, HasSubstr("job.overwrite = true"));
  EXPECT_TRUE(fs::exists(snapshot(10) + "/manifest.json"));
  EXPECT_EQ(test::read_file(folder / "run/metrics.jsonl"), "old\n");
}

TEST_F(RunFolderTest, EachPartOfAnEarlierRunCounts) {
  for (auto file : {"metrics.jsonl", "config.toml"}) {
    fs::create_directories(folder / "run");
    test::write_file(folder / "run/" + file, "old\n");
    refusal(Code::config);
    fs::remove_all(folder / "run");
  }
  fs::create_directories(snapshot(3));
  refusal(Code::config);
}

TEST_F(RunFolderTest, OverwriteDeletesTheEarlierRunAndNothingElse) {
  earlier_run({9, 10});
  fs::create_directories(folder / "run/checkpoints/.saving-00000011");
  fs::create_directories(folder / "run/checkpoints/step-best");
  test::write_file(folder / "run/notes.txt", "mine");
  config.job.overwrite = true;
  EXPECT_EQ(resumed_from(), "");
  std::vector<std::string> left;
  for (auto& entry : fs::recursive_directory_iterator(folder / "run")) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre("notes.txt", "checkpoints", "step-best"));

  // What comes next goes on with the new run.
  test::save(folder / "run/checkpoints", 2, 1, format);
  config.checkpoint.resume = "auto";
  EXPECT_EQ(resumed_from(), snapshot(2));
}

TEST_F(RunFolderTest, GoesOnFromANamedSnapshot) {
  earlier_run({9, 10});
  for (auto end : {"", "/"}) {
    config.checkpoint.resume = snapshot(10) + end;
    EXPECT_EQ(resumed_from(), snapshot(10));
  }
}

TEST_F(RunFolderTest, GoingBackIsRefusedWhileLaterSnapshotsAreThere) {
  earlier_run({8, 9, 10});
  config.checkpoint.resume = snapshot(8);
  EXPECT_THAT(refusal(Code::config), HasSubstr("resume goes back to step 8, but"));
  EXPECT_TRUE(fs::exists(snapshot(10)));
  config.job.overwrite = true;
  EXPECT_EQ(resumed_from(), snapshot(8));
  EXPECT_EQ(list_snapshots(folder / "run/checkpoints").size(), 1u);
  EXPECT_EQ(test::read_file(folder / "run/metrics.jsonl"), "old\n") << "the run goes on: its file is cut later";
}

TEST_F(RunFolderTest, ASnapshotOfAnotherRunBeginsANewOne) {
  earlier_run({5}, "other");
  config.checkpoint.resume = snapshot(5, "other");
  EXPECT_EQ(resumed_from(), snapshot(5, "other"));
  fs::remove_all(folder / "run");
  earlier_run({10});
  EXPECT_THAT(refusal(Code::config), HasSubstr("holds an earlier run"));
  config.job.overwrite = true;
  EXPECT_EQ(resumed_from(), snapshot(5, "other"));
  EXPECT_THAT(list_snapshots(folder / "run/checkpoints"), IsEmpty());
  EXPECT_EQ(list_snapshots(folder / "other/checkpoints").size(), 1u);
}

TEST_F(RunFolderTest, TheConfigurationIsNotOverwrittenByItsOwnRun) {
  fs::create_directories(folder / "run");
  config.file = folder / "run/config.toml";
  test::write_file(config.file, "mine");
  config.job.overwrite = true;
  EXPECT_THAT(refusal(Code::config), HasSubstr("is where the configuration " + config.file + " is"));
  EXPECT_EQ(test::read_file(config.file), "mine");
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeIsAnErrorOfEveryRank) {
  test::write_file(folder / "run", "a file");
  EXPECT_THAT(refusal(Code::io), HasSubstr("[job] dump_folder " + folder / "run"));
}

TEST_F(RunFolderTest, WritesWhatWasResolved) {
  RunFolder f;
  f.path = folder.path();
  config.text = "[training]\nsteps = 3\n";
  write_run_files(f, config, "{\"plugins\": []}");
  EXPECT_EQ(test::read_file(folder / "config.toml"), config.text);
  EXPECT_EQ(test::read_file(folder / "plugins.json"), "{\"plugins\": []}");
  f.path = folder / "gone";
  EXPECT_THAT(error_text(Code::io, [&] { write_run_files(f, config, ""); }), HasSubstr("gone/config.toml"));
}

TEST_F(RunFolderTest, AFileThatDoesNotFitLeavesTheOldOne) {
  const auto path = folder / "config.toml";
  test::write_file(path, "old");
  fs::create_symlink("/dev/full", path + ".new");
  const auto text = error_text(Code::io, [&] { write_whole(path, "new"); });
  EXPECT_THAT(text, HasSubstr("config.toml: cannot be written: No space left on device"));
  EXPECT_EQ(test::read_file(path), "old");
  EXPECT_FALSE(fs::exists(fs::symlink_status(path + ".new")));
  write_whole(path, "new");
  EXPECT_EQ(test::read_file(path), "new");
}

}  // namespace
}  // namespace shale

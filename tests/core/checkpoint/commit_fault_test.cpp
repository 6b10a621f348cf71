// Whatever goes wrong while a snapshot is written, the last good one stays and the new one is not seen.
#include <atomic>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<std::uint64_t> steps_in(const std::string& root) {
  std::vector<std::uint64_t> out;
  for (const SnapshotName& name : list_snapshots(root)) out.push_back(name.step);
  return out;
}

// All that is listed can be loaded and is what was saved (the seed of each step is the step).
void expect_all_intact(const std::string& root) {
  PlainFormat format;
  for (const SnapshotName& name : list_snapshots(root)) {
    EXPECT_EQ(difference(*SnapshotReader::open(name.path, format), make_state(name.step), 2), "") << name.path;
    EXPECT_TRUE(verify_snapshot(name.path).empty()) << name.path;
  }
}

std::vector<std::string> try_save(const std::string& root, std::uint64_t step, int world, PlainFormat& format) {
  const auto state = make_state(step);
  return run_ranks(world, [&](Group& group) {
    SnapshotSpec spec = share(state, root, group.rank(), world);
    spec.step = step;
    save_snapshot(group, format, spec);
  });
}

TEST(CommitFault, AnErrorOnAnyRankReachesAllRanksAlike) {
  for (const char* point : {"write", "written", "finish", "finished"})
    for (const int writer : {0, 1, 2}) {
      if (writer != 0 && std::string(point).starts_with("finish")) continue;
      const TempFolder temp;
      PlainFormat format;
      save(temp.path(), 1, 3, format, 1);
      format.at = [&](const std::string& here, int who) {
        if (here == point && who == writer) fail(Code::io, "the disk of writer ", who, " is gone");
      };
      const auto errors = try_save(temp.path(), 2, 3, format);
      EXPECT_THAT(errors, Each(str("E-io the disk of writer ", writer, " is gone (rank ", writer, ")"))) << point;
      EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u));
      EXPECT_EQ(Folder::for_reading(temp.path())->list().size(), 1u) << point;
      expect_all_intact(temp.path());
      format.at = [](const std::string&, int) {};
      save(temp.path(), 2, 3, format, 2);
      EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u, 2u));
    }
}

TEST(CommitFault, OtherExceptionsAreReportedToo) {
  const TempFolder temp;
  PlainFormat format;
  format.at = [](const std::string&, int who) {
    if (who == 1) throw std::bad_alloc();
  };
  EXPECT_THAT(try_save(temp.path(), 2, 2, format), Each(HasSubstr("out of host memory")));
  format.at = [](const std::string&, int who) {
    if (who == 1) throw std::runtime_error("odd");
  };
  EXPECT_THAT(try_save(temp.path(), 2, 2, format), Each("E-bug odd (rank 1)"));
}

TEST(CommitFault, AFileThatAnotherRankLostIsNoticedBeforeTheCommit) {
  const TempFolder temp;
  PlainFormat format;
  format.at = [&](const std::string& point, int) {
    if (point == "finish") fs::resize_file(temp / ".saving-00000002/data-1-of-2", 3);
  };
  EXPECT_THAT(try_save(temp.path(), 2, 2, format), Each(HasSubstr("data-1-of-2: 3 bytes, the manifest says")));
  EXPECT_TRUE(Folder::for_reading(temp.path())->list().empty());
}

TEST(CommitFault, AFolderThatCannotBeMade) {
  const TempFolder temp;
  PlainFormat format;
  write_file(temp / "file", "");
  const auto errors = try_save(temp / "file/checkpoints", 2, 2, format);
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], ::testing::AllOf(HasSubstr("E-io"), HasSubstr("file/checkpoints: cannot be made")));
}

TEST(CommitFault, FullAndReadOnlyDisks) {
  const TempFolder temp;
  if (::mount("tmpfs", temp.path().c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "mount is not allowed here";
  PlainFormat format;
  try_save(temp.path(), 1, 2, format);
  EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u));
  write_file(temp / "filler", std::string(40 << 10, 'x'));
  const auto full = try_save(temp.path(), 2, 2, format);
  EXPECT_THAT(full, Each(HasSubstr("No space left on device; free space")));
  EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u));
  expect_all_intact(temp.path());
  EXPECT_EQ(::mount("tmpfs", temp.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(try_save(temp.path(), 2, 2, format), Each(HasSubstr("Read-only file system; choose a folder")));
  EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u));
  ::umount(temp.path().c_str());
}

TEST(CommitFault, AFileSizeLimit) {
  const TempFolder temp;
  PlainFormat format;
  save(temp.path(), 1, 2, format, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto errors = try_save(temp.path(), 2, 2, format);
    ::_exit(errors[0] == errors[1] && errors[0].find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u));
  expect_all_intact(temp.path());
}

// Saves steps 2, 3, ... in a child until it is killed.
pid_t start_saving(const std::string& root, PlainFormat& format) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (std::uint64_t step = 2;; ++step) {
    try_save(root, step, 2, format);
    try {
      retain(root, 2, "");
    } catch (const Error&) {
    }
  }
}

TEST(CommitFault, KilledAtRandomMoments) {
  const TempFolder temp(TempFolder::On::disk);
  PlainFormat format;
  std::mt19937 random(17);
  int left_overs = 0;
  for (int round = 0; round < 60; ++round) {
    fs::remove_all(temp / "c");
    save(temp / "c", 1, 2, format, 1);
    const pid_t child = start_saving(temp / "c", format);
    ::usleep(500 + random() % 20000);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    for (const std::string& name : Folder::for_reading(temp / "c")->list()) left_overs += is_left_over(name);
    ASSERT_FALSE(list_snapshots(temp / "c").empty());  // there is never a moment with none
    expect_all_intact(temp / "c");
    save(temp / "c", 1000000, 1, format, 1000000);  // and the next save cleans up
    for (const std::string& name : Folder::for_reading(temp / "c")->list()) EXPECT_FALSE(is_left_over(name)) << name;
  }
  EXPECT_GT(left_overs, 0) << "no kill came inside a save: the test tests nothing";
}

TEST(CommitFault, KilledAtEachPoint) {
  for (const char* point : {"write", "written", "finish", "finished"}) {
    const TempFolder temp;
    PlainFormat format;
    save(temp.path(), 1, 2, format, 1);
    format.at = [&](const std::string& here, int who) {
      if (here == point && who == 0) ::raise(SIGKILL);
    };
    const pid_t child = start_saving(temp.path(), format);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_THAT(steps_in(temp.path()), ::testing::ElementsAre(1u)) << point;
    EXPECT_TRUE(fs::exists(temp / ".saving-00000002")) << point;
    expect_all_intact(temp.path());
    PlainFormat sound;
    save(temp.path(), 2, 2, sound, 2);
    EXPECT_THAT(Folder::for_reading(temp.path())->list(), ::testing::ElementsAre("step-00000001", "step-00000002"));
  }
}

}  // namespace
}  // namespace shale::test

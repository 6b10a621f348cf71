// Listing, retention, verification and inspection.
#include "core/checkpoint/snapshot.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/manifest.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::uint64_t> steps_in(const std::string& root) {
  std::vector<std::uint64_t> out;
  for (const SnapshotName& name : list_snapshots(root)) out.push_back(name.step);
  return out;
}

TEST(Retain, C24KeepsTheLargestStepsAndNothingForeignIsTouched) {
  for (const int keep : {2, 1}) {
    const TempFolder temp;
    PlainFormat format;
    fs::create_directories(temp / "step-100");
    fs::create_directories(temp / "step-00000099.tmp");
    fs::create_directories(temp / "step-00000001");  // our name, but not a snapshot
    write_file(temp / "step-00000098", "a file");
    for (std::uint64_t step = 8; step <= 12; ++step) {
      save(temp.path(), step, 1, format);
      retain(temp.path(), keep, "");
      std::vector<std::uint64_t> wanted;
      for (std::uint64_t k = std::max<std::uint64_t>(8, step + 1 - static_cast<std::uint64_t>(keep)); k <= step; ++k)
        wanted.push_back(k);
      EXPECT_EQ(steps_in(temp.path()), wanted);
    }
    for (const char* name : {"step-100", "step-00000099.tmp", "step-00000001", "step-00000098"})
      EXPECT_TRUE(fs::exists(temp / name)) << name;
  }
}

TEST(Retain, C24OrdersByNumberWhereTheNameGainsADigit) {
  const TempFolder temp;
  PlainFormat format;
  for (const std::uint64_t step : {99999999u, 100000000u, 100000001u}) save(temp.path(), step, 1, format);
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(99999999u, 100000000u, 100000001u));
  retain(temp.path(), 2, "");
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(100000000u, 100000001u));
}

TEST(Retain, TheProtectedOneStays) {
  const TempFolder temp;
  PlainFormat format;
  for (const std::uint64_t step : {1u, 2u, 3u, 4u}) save(temp.path(), step, 1, format);
  retain(temp.path(), 1, temp / "step-00000002/");
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(2u, 4u));
  EXPECT_THROW(retain(temp.path(), 0, ""), Error);
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(2u, 4u));
}

TEST(Retain, DamagedOnesAreNotCounted) {
  const TempFolder temp;
  PlainFormat format;
  for (const std::uint64_t step : {1u, 2u, 3u}) save(temp.path(), step, 1, format);
  fs::resize_file(temp / "step-00000003/data-0-of-1", 1);
  retain(temp.path(), 1, "");
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(2u));  // the newest whole one is kept
  EXPECT_TRUE(fs::exists(temp / "step-00000003"));
}

TEST(List, HalfWrittenForeignAndDamagedFoldersAreNotListed) {
  const TempFolder temp;
  PlainFormat format;
  EXPECT_TRUE(list_snapshots(temp / "none").empty());
  for (std::uint64_t step = 1; step <= 5; ++step) save(temp.path(), step, 2, format);
  fs::remove(temp / "step-00000001/manifest.json");
  fs::remove(temp / "step-00000002/data-1-of-2");
  write_file(temp / "step-00000003/index.txt", read_file(temp / "step-00000003/index.txt") + "x");
  fs::rename(temp / "step-00000004", temp / "step-00000044");  // says step 4 inside
  fs::copy(temp / "step-00000005", temp / "step-5", fs::copy_options::recursive);
  EXPECT_THAT(steps_in(temp.path()), ElementsAre(5u));
}

TEST(Verify, FindsEveryFlippedByte) {
  const TempFolder temp;
  PlainFormat format;
  save(temp.path(), 1, 2, format);
  const std::string path = temp / "step-00000001";
  EXPECT_TRUE(verify_snapshot(path).empty());
  for (const std::string& name : Folder::for_reading(path)->list()) {
    if (name == kManifestFile) continue;
    const std::string good = read_file(path + "/" + name);
    for (std::size_t k = 0; k < good.size(); k += 1 + good.size() / 37) {
      std::string bad = good;
      bad[k] = static_cast<char>(bad[k] ^ 0x10);
      write_file(path + "/" + name, bad);
      EXPECT_THAT(verify_snapshot(path), ElementsAre(HasSubstr(name + ": the bytes were changed")));
    }
    write_file(path + "/" + name, good + "x");
    EXPECT_THAT(verify_snapshot(path), ElementsAre(HasSubstr("bytes, the manifest says")));
    write_file(path + "/" + name, good);
  }
  fs::remove(path + "/index.txt");
  EXPECT_THAT(verify_snapshot(path), ElementsAre(HasSubstr("index.txt: cannot be opened")));
  fs::remove(path + "/manifest.json");
  EXPECT_THROW(verify_snapshot(path), Error);
}

TEST(Inspect, TellsWhatThereIs) {
  const TempFolder temp;
  PlainFormat format;
  save(temp.path(), 12, 2, format);
  const std::string text = inspect_snapshot(temp / "step-00000012", format);
  for (const char* part : {"step      12\n", "saved by  2 ranks\n", "format    plain\n", "sharding full_shard 0.1.0\n",
                           "weight/model.embed.weight/weight", "[13, 7]", "364 B", "bfloat16", "= model.embed.weight",
                           "run/run/step", "value     7", "total"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(FormatOf, IsEmptyWithoutManifest) {
  const TempFolder temp;
  EXPECT_EQ(format_of(temp.path()), "");
  write_file(temp / kManifestFile, "{}");
  EXPECT_THROW(format_of(temp.path()), Error);
}

}  // namespace
}  // namespace shale::test

#include <sys/resource.h>

#include <filesystem>
#include <random>

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest() {
    save(temp.path(), 1, 2, format);
    path = temp / "step-00000001";
  }
  // "" when it opens and everything in it reads, else the message; never anything but Error{checkpoint}.
  std::string attempt(bool foreign = false) {
    try {
      const auto reader = foreign ? SnapshotReader::open_foreign(path, format) : SnapshotReader::open(path, format);
      for (const Item& item : reader->items()) {
        if (item.kind == ItemKind::bytes) reader->read_bytes(item);
        if (item.kind != ItemKind::tensor || whole(item.shape).numel() > 1 << 20) continue;
        reader->read(item, 0, at::empty({whole(item.shape).numel()}, at::TensorOptions().dtype(item.dtype)));
      }
      return "";
    } catch (const Error& bad) {
      EXPECT_EQ(bad.code(), Code::checkpoint) << bad.what();
      EXPECT_EQ(std::string(bad.what()).find('\n'), std::string::npos) << bad.what();
      return bad.what();
    }
  }
  TempFolder temp;
  PlainFormat format;
  std::string path;
};

TEST_F(ReaderTest, ReadsOnlyWhatIsAsked) {
  const auto reader = SnapshotReader::open(path, format);
  EXPECT_EQ(reader->bytes_read(), 0u);
  const Item* item = reader->find(ItemRole::weight, "model.embed.weight", "weight");
  const at::Tensor some = at::empty({30}, at::kFloat);
  reader->read(*item, 40, some);
  EXPECT_GE(reader->bytes_read(), 120u);
  EXPECT_LE(reader->bytes_read(), 13u * 7 * 4);
}

// A snapshot of many ranks has more files than a process may have open.
TEST_F(ReaderTest, OpensFewFilesAtATime) {
  save(temp.path(), 2, 120, format);
  path = temp / "step-00000002";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 85;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(attempt(), "");
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(ReaderWindow, LargeRangesAreReadOnce) {
  const TempFolder temp;
  PlainFormat format;
  State large;
  large.item.name = "w";
  large.item.key = "weight";
  large.item.shape = {1000, 3000};
  large.data = at::empty({3000000}, at::kFloat);
  large.data.fill_(1.5);
  run_ranks(4, [&](Group& group) { save_snapshot(group, format, share({large}, temp.path(), group.rank(), 4)); });
  const auto reader = SnapshotReader::open(temp / "step-00000000", format);
  const at::Tensor half = at::empty({1500000}, at::kFloat);
  reader->read(*reader->find(ItemRole::weight, "w", "weight"), 700000, half);
  EXPECT_EQ(reader->bytes_read(), 6000000u);
  EXPECT_TRUE(half.eq(1.5).all().item<bool>());
}

TEST_F(ReaderTest, WrongUseIsABug) {
  const auto reader = SnapshotReader::open(path, format);
  const Item* item = reader->find(ItemRole::weight, "model.embed.weight", "weight");
  EXPECT_THROW(reader->read(*item, 90, at::empty({2}, at::kFloat)), Error);
  EXPECT_THROW(reader->read(*item, -1, at::empty({2}, at::kFloat)), Error);
  EXPECT_THROW(reader->read(*item, 0, at::empty({2}, at::kDouble)), Error);
  EXPECT_THROW(reader->read_bytes(*item), Error);
  Item stranger = *item;
  stranger.name = "stranger";
  EXPECT_THROW(reader->read(stranger, 0, at::empty({2}, at::kFloat)), Error);
}

TEST_F(ReaderTest, C15AFolderThatIsNotThereOrNoSnapshot) {
  path = temp / "mistyped";
  EXPECT_THAT(attempt(), HasSubstr("mistyped: cannot be opened: No such file"));
  path = temp.path();
  EXPECT_THAT(attempt(), HasSubstr("manifest.json: cannot be opened"));
}

TEST_F(ReaderTest, MissingTruncatedAndExtendedFiles) {
  for (const std::string& name : {std::string("data-0-of-2"), std::string("data-1-of-2"), std::string("index.txt"),
                                  std::string("run.json"), std::string("model.json")}) {
    const std::string file = path + "/" + name, good = read_file(file);
    write_file(file, good.substr(0, good.size() - 1));
    EXPECT_THAT(attempt(), HasSubstr("bytes, the manifest says")) << name;
    write_file(file, good + "x");
    EXPECT_THAT(attempt(), HasSubstr("bytes, the manifest says")) << name;
    fs::remove(file);
    EXPECT_THAT(attempt(), HasSubstr("cannot be opened")) << name;
    write_file(file, good);
  }
  EXPECT_EQ(attempt(), "");
}

TEST_F(ReaderTest, AnIndexThatWasChangedIsNoticed) {
  std::string text = read_file(path + "/index.txt");
  text[text.size() / 2] ^= 1;
  write_file(path + "/index.txt", text);
  EXPECT_THAT(attempt(), HasSubstr("the bytes were changed"));
}

TEST_F(ReaderTest, AnotherFormatIsNamed) {
  write_file(path + "/manifest.json", read_file(path + "/manifest.json"));
  class Other final : public CheckpointFormat {
   public:
    const std::string& id() const override { return id_; }
    FormatTraits traits() override { return {}; }
    void write(const WriteCall&) override {}
    void finish(const FinishCall&) override {}
    int probe(Folder&) override { return 0; }
    Index describe(Folder&) override { return {}; }
    void read(Folder&, const std::string&, std::span<std::byte>) override {}

   private:
    std::string id_ = "other";
  } other;
  try {
    SnapshotReader::open(path, other);
    FAIL();
  } catch (const Error& bad) {
    EXPECT_THAT(bad.what(), HasSubstr("was written by the checkpoint format 'plain', not 'other'"));
  }
}

TEST_F(ReaderTest, AnIndexMayNameOnlyFilesOfTheManifest) {
  std::string text = read_file(path + "/index.txt");
  write_file(path + "/stranger-f-2", std::string(10000, 'x'));  // as long a name as data-1-of-2 minus nothing
  for (std::size_t at = 0; (at = text.find("data-1-of-2", at)) != std::string::npos;)
    text.replace(at, 11, "stranger-f-2");
  write_file(path + "/index.txt", text);
  fs::rename(path + "/stranger-f-2", temp / "aside");
  sign(path);
  fs::rename(temp / "aside", path + "/stranger-f-2");
  EXPECT_THAT(attempt(), HasSubstr("stranger-f-2: is named in the index, but not in the manifest"));
}

TEST_F(ReaderTest, ForeignFoldersNeedNoManifest) {
  fs::remove(path + "/manifest.json");
  EXPECT_EQ(attempt(true), "");
  EXPECT_NE(attempt(false), "");
}

TEST_F(ReaderTest, IndexesSurviveThousandsOfMutations) {
  std::mt19937 random(23);
  const std::string good = read_file(path + "/index.txt");
  int opened = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int k = 0; k < 1 + static_cast<int>(random() % 3); ++k) {
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = static_cast<char>('0' + random() % 10);
          break;
        case 2:
          text.erase(at, random() % 40);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        default:
          text.insert(at, random() % 2 ? "9223372036854775807" : "-1");
          break;
      }
    }
    write_file(path + "/index.txt", text);
    opened += attempt(true).empty();
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, 4000);
}

TEST_F(ReaderTest, RunFilesSurviveThousandsOfMutations) {
  std::mt19937 random(29);
  const std::string good = read_file(path + "/run.json");
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    const std::size_t at = random() % text.size();
    if (random() % 2)
      text[at] = static_cast<char>(random());
    else
      text.erase(at, random() % 20);
    write_file(path + "/run.json", text);
    sign(path);
    attempt();
  }
}

}  // namespace
}  // namespace shale::test

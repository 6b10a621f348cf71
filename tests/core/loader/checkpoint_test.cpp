// A format plugin over real folders: what it writes comes back, and misuse of its services is an Error.
#include "core/checkpoint/format.h"

#include <random>

#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::TempFolder;

std::unique_ptr<Plugins> format_in(const std::string& mood) {
  Config c = test::good_config();
  c.format.plugin = test::bad("format");
  c.format.options = {test::option("mood", mood)};
  return test::load(c);
}

struct Snapshot {  // one writer, two tensors' boxes and a byte string
  std::vector<float> data{1, 2, 3, 4, 5, 6, 7, 8};
  std::string bytes = "generator state.";
  Item weight{ItemKind::tensor, ItemRole::weight, "w", "weight", at::kFloat, {4, 2}, {}, ""};
  Item state{ItemKind::bytes, ItemRole::run, "run", "rng.rank_0", at::kByte, {16}, {}, ""};
  Box top{{0, 0}, {2, 2}}, bottom{{2, 0}, {2, 2}};
  std::string report;

  std::vector<WriteEntry> entries() {
    return {{&state, nullptr, 16, [this] { return static_cast<const void*>(bytes.data()); }},
            {&weight, &top, 16, [this] { return static_cast<const void*>(data.data()); }},
            {&weight, &bottom, 16, [this] { return static_cast<const void*>(data.data() + 4); }}};
  }
  void write(CheckpointFormat& format, const std::string& path) {
    const auto folder = Folder::for_writing(path);
    const auto list = entries();
    format.write({.step = 3, .folder = folder.get(), .entries = list, .report = &report});
    const std::vector<std::string> reports{report};
    format.finish({.step = 3, .total_bytes = 32, .folder = folder.get(), .reports = reports, .model_json = "{}"});
    folder->sync();
  }
};

TEST(Checkpoint, Traits) {
  const auto plugins = format_in("good");
  const FormatTraits t = plugins->checkpoint().traits();
  EXPECT_TRUE(t.boxes && t.bytes && t.optimizer);
  EXPECT_FALSE(t.values || t.aliases || t.one_writer);
  EXPECT_EQ(t.file_bytes, 4096u);
  EXPECT_EQ(t.dtypes, (std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kByte}));
  expect_error(Code::config, {"[checkpoint] format", "can hold no dtype"},
               [] { format_in("no dtypes")->checkpoint().traits(); });
}

TEST(Checkpoint, WhatIsWrittenComesBack) {
  for (const char* mood : {"good", "leaves open"}) {
    const TempFolder folder;
    const auto plugins = format_in(mood);
    Snapshot snapshot;
    snapshot.write(plugins->checkpoint(), folder.path());
    EXPECT_EQ(std::filesystem::file_size(folder.path() + "/part-0"), 48u);
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/index.new"));
    const auto reading = Folder::for_reading(folder.path());
    EXPECT_EQ(plugins->checkpoint().probe(*reading), 2);  // the plugin said 7
    const Index index = plugins->checkpoint().describe(*reading);
    ASSERT_EQ(index.items.size(), 3u);
    EXPECT_EQ(index.items[0].kind, ItemKind::bytes);
    EXPECT_EQ(index.items[0].shape, (std::vector<std::int64_t>{16}));
    EXPECT_EQ(index.items[1].name, "w");
    EXPECT_EQ(index.items[1].shape, (std::vector<std::int64_t>{4, 2}));
    ASSERT_EQ(index.boxes.size(), 3u);
    EXPECT_EQ(index.boxes[0].box, (Box{{0}, {16}}));
    EXPECT_EQ(index.boxes[2].box, snapshot.bottom);
    EXPECT_EQ(index.boxes[2].offset, 32u);
    EXPECT_EQ(index.boxes[2].file, "part-0");
  }
}

TEST(Checkpoint, CodedBoxesAreLocated) {
  const TempFolder folder;
  Snapshot snapshot;
  snapshot.write(format_in("good")->checkpoint(), folder.path());
  const auto plugins = format_in("coded");
  const auto reading = Folder::for_reading(folder.path());
  const Index index = plugins->checkpoint().describe(*reading);
  ASSERT_EQ(index.boxes.size(), 3u);
  EXPECT_EQ(index.boxes[2].token, "part-0 32");
  std::vector<float> back(4);
  plugins->checkpoint().read(*reading, index.boxes[2].token, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, (std::vector<float>{5, 6, 7, 8}));
  expect_error(Code::checkpoint, {"token", "has no blank"},
               [&] { plugins->checkpoint().read(*reading, "nonsense", std::as_writable_bytes(std::span(back))); });
  expect_error(Code::internal, {"locate named no file"}, [&] {
    format_in("locates nothing")->checkpoint().read(*reading, "part-0 0", std::as_writable_bytes(std::span(back)));
  });
}

TEST(Checkpoint, AFolderThatIsNotOfThisFormat) {
  const TempFolder folder;
  folder.write("model.bin", "x");
  const auto plugins = format_in("good");
  const auto reading = Folder::for_reading(folder.path());
  EXPECT_EQ(plugins->checkpoint().probe(*reading), 0);
  const Error e = test::error_of([&] { plugins->checkpoint().describe(*reading); });
  test::expect_contains(e.what(), {"[checkpoint] format", "describe", "index"});
  EXPECT_NE(e.code(), Code::internal);
}

struct Case {
  const char* mood;
  Code code;
  std::vector<std::string> parts;
};
std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.mood;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

class WritingMood : public testing::TestWithParam<Case> {};
TEST_P(WritingMood, IsAnError) {
  const TempFolder folder;
  const auto plugins = format_in(GetParam().mood);
  Snapshot snapshot;
  auto parts = GetParam().parts;
  parts.push_back("[checkpoint] format");
  expect_error(GetParam().code, parts, [&] { snapshot.write(plugins->checkpoint(), folder.path()); });
}
INSTANTIATE_TEST_SUITE_P(All, WritingMood,
                         testing::Values(Case{"escapes", Code::internal, {"write: name: must be a plain file name"}},
                                         Case{"no name", Code::internal, {"name: must have 1..255 bytes"}},
                                         Case{"null out", Code::internal, {"out: is NULL"}},
                                         Case{"not a file", Code::internal, {"file: is not open"}},
                                         Case{"not a folder", Code::internal, {"folder: is not lent to this hook"}},
                                         Case{"renames", Code::internal, {"folder: has renames in finish only"}},
                                         Case{"closes twice", Code::internal, {"file: is not open"}},
                                         Case{"wrong entry", Code::internal, {"k: is 3, there are 3 entries"}},
                                         Case{"null report", Code::internal, {"bytes: is NULL"}}),
                         name_of);

TEST(Checkpoint, ErrorsOfTheFolderKeepTheirKind) {
  const TempFolder folder;
  const auto plugins = format_in("missing");
  Snapshot snapshot;
  const Error through = test::error_of([&] { snapshot.write(plugins->checkpoint(), folder.path()); });
  const auto writing = Folder::for_writing(folder.path());
  const Error direct = test::error_of([&] { writing->open("missing"); });
  EXPECT_EQ(through.code(), direct.code());
  test::expect_contains(through.what(), {direct.what(), "[checkpoint] format: write: "});
}

class ReadingMood : public testing::TestWithParam<Case> {};
TEST_P(ReadingMood, IsAnError) {
  const TempFolder folder;
  Snapshot snapshot;
  snapshot.write(format_in("good")->checkpoint(), folder.path());
  const auto plugins = format_in(GetParam().mood);
  const auto reading = Folder::for_reading(folder.path());
  auto parts = GetParam().parts;
  parts.push_back("[checkpoint] format");
  parts.push_back("describe: ");
  expect_error(GetParam().code, parts, [&] { plugins->checkpoint().describe(*reading); });
}
INSTANTIATE_TEST_SUITE_P(All, ReadingMood,
                         testing::Values(Case{"no kind", Code::checkpoint, {"run/rng.rank_0: is of kind 9"}},
                                         Case{"no role", Code::checkpoint, {"has the role 0"}},
                                         Case{"odd dtype", Code::checkpoint, {"has dtype 30583"}},
                                         Case{"many dims", Code::checkpoint, {"has 9 dimensions"}},
                                         Case{"negative", Code::checkpoint, {"has a dimension of -4"}},
                                         Case{"long name", Code::checkpoint, {"more than 255 bytes"}},
                                         Case{"value", Code::checkpoint, {"is of kind VALUE but has no value"}},
                                         Case{"short item", Code::internal, {"item: is NULL or too short"}},
                                         Case{"wrong item", Code::internal, {"item: is 5, there are 1 items"}},
                                         Case{"box dims", Code::checkpoint, {"box: has 9 dimensions"}},
                                         Case{"box below 0", Code::checkpoint, {"box: begins at -1"}},
                                         Case{"no file", Code::checkpoint, {"file: ", "0 bytes"}},
                                         Case{"no token", Code::internal, {"token: has 0 bytes"}},
                                         Case{"reads too far", Code::checkpoint, {"lie outside a file of"}},
                                         Case{"reads nowhere", Code::checkpoint, {"lie outside a file of"}},
                                         Case{"writes", Code::internal, {"file: is read only"}},
                                         Case{"creates", Code::internal, {"folder: is read only here"}}),
                         name_of);

TEST(Checkpoint, ADamagedIndexNeverCrashes) {
  const TempFolder folder;
  Snapshot snapshot;
  const auto plugins = format_in("good");
  snapshot.write(plugins->checkpoint(), folder.path());
  const std::string whole = test::content_of(folder.path() + "/index");
  std::mt19937 random(5);
  for (int k = 0; k < 2000; ++k) {
    std::string damaged = whole;
    for (std::size_t n = random() % 4 + 1; n > 0; --n) {
      char c = static_cast<char>("0123456789- "[random() % 12]);
      const std::size_t at = random() % damaged.size();
      if (std::isdigit(static_cast<unsigned char>(damaged[at]))) damaged[at] = c == ' ' ? '7' : c;
    }
    folder.write("index", damaged);
    const auto reading = Folder::for_reading(folder.path());
    try {
      plugins->checkpoint().describe(*reading);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace shale

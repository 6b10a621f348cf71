#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_in(const std::string& root) { return Folder::for_reading(root)->list(); }

class SaveAndLoad : public ::testing::TestWithParam<std::tuple<int, std::uint64_t, bool>> {};

TEST_P(SaveAndLoad, AnyWorldReadsWhatAnyWorldWrote) {
  const auto [world, file_bytes, coded] = GetParam();
  const TempFolder temp;
  PlainFormat format;
  format.held.file_bytes = file_bytes;
  format.coded = coded;
  save(temp.path(), 100, world, format);
  EXPECT_THAT(names_in(temp.path()), ElementsAre("step-00000100"));
  const auto reader = SnapshotReader::open(temp / "step-00000100", format);
  EXPECT_EQ(reader->step(), 100u);
  for (const int readers : {1, 2, 3, 4, 7, 8}) EXPECT_EQ(difference(*reader, make_state(1), readers), "") << readers;
}
INSTANTIATE_TEST_SUITE_P(Worlds, SaveAndLoad,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5), ::testing::Values(0u, 64u),
                                            ::testing::Bool()));

TEST(Save, KeepsValuesBytesAliasesAndTexts) {
  for (const bool held : {true, false}) {
    const TempFolder temp;
    PlainFormat format;
    format.held.values = format.held.bytes = format.held.aliases = held;
    save(temp.path(), 3, 2, format);
    EXPECT_EQ(fs::exists(temp / "step-00000003/run.json"), true);  // the tensor without elements is in it
    const auto reader = SnapshotReader::open(temp / "step-00000003", format);
    const Item* step = reader->find(ItemRole::run, "run", "step");
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(std::get<std::int64_t>(step->value), 7);
    EXPECT_EQ(reader->read_bytes(*reader->find(ItemRole::run, "run", "rng.rank_0")), std::string("\0\xff\n\"x", 5));
    EXPECT_EQ(reader->read_bytes(*reader->find(ItemRole::run, "run", "nothing")), "");
    EXPECT_EQ(reader->find(ItemRole::run, "run", "other"), nullptr);
    const Item* tied = reader->find(ItemRole::weight, "lm_head.weight", "weight");
    ASSERT_NE(tied, nullptr);
    EXPECT_EQ(tied->alias_of, "model.embed.weight");
    std::vector<State> state = make_state(1);
    state[0].item.name = "lm_head.weight";  // reads through to the bytes it is tied to
    EXPECT_EQ(difference(*reader, {state[0]}, 3), "");
    EXPECT_EQ(reader->model_json(), "{\"model_type\": \"llama\"}");
    EXPECT_EQ(reader->config_text(), "[train]\nsteps = 3\n");
    EXPECT_EQ(format_of(temp / "step-00000003"), "plain");
    EXPECT_TRUE(verify_snapshot(temp / "step-00000003").empty());
  }
}

TEST(Save, ValuesOfEveryTypeComeBackExactly) {
  const TempFolder temp;
  PlainFormat format;
  format.held.values = false;
  const std::vector<ItemValue> values{std::int64_t{INT64_MIN},
                                      std::int64_t{INT64_MAX},
                                      0.1,
                                      -0.0,
                                      5e-324,
                                      std::numeric_limits<double>::infinity(),
                                      std::string("a \"b\"\n\u00e9"),
                                      std::string()};
  const auto errors = run_ranks(1, [&](Group& group) {
    SnapshotSpec spec = share(make_state(1), temp.path(), 0, 1);
    for (std::size_t k = 0; k < values.size(); ++k)
      spec.items.push_back({ItemKind::value, ItemRole::run, "run", str("v", k), at::kByte, {}, values[k], ""});
    save_snapshot(group, format, spec);
  });
  ASSERT_THAT(errors, ElementsAre(""));
  const auto reader = SnapshotReader::open(temp / "step-00000000", format);
  for (std::size_t k = 0; k < values.size(); ++k)
    EXPECT_EQ(reader->find(ItemRole::run, "run", str("v", k))->value, values[k]) << k;
}

TEST(Save, WhatTheFormatCannotHoldIsRefusedByNameOnAllRanks) {
  const auto attempt = [](const std::function<void(PlainFormat&)>& change) {
    const TempFolder temp;
    PlainFormat format;
    change(format);
    const auto errors = run_ranks(
        2, [&](Group& group) { save_snapshot(group, format, share(make_state(1), temp.path(), group.rank(), 2)); });
    EXPECT_TRUE(names_in(temp.path()).empty());
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  EXPECT_THAT(attempt([](PlainFormat& f) {
                f.held.dtypes = {at::kFloat, at::kDouble, at::kLong, at::kByte};
              }),
              HasSubstr("E-ckpt weight/model.layers.0.qkv/weight: the checkpoint format 'plain' cannot hold bfloat16"));
  EXPECT_THAT(attempt([](PlainFormat& f) { f.held.optimizer = false; }), HasSubstr("cannot hold optimizer state"));
}

TEST(Save, PiecesThatLeaveAHoleOrOverlapNeverBecomeASnapshot) {
  for (const std::int64_t shift : {-1, 1}) {
    const TempFolder temp;
    PlainFormat format;
    const auto errors = run_ranks(2, [&](Group& group) {
      SnapshotSpec spec = share(make_state(1), temp.path(), group.rank(), 2);
      if (group.rank() == 1) spec.pieces[0].begin += shift;
      if (group.rank() == 1) spec.pieces[0].data = spec.pieces[0].data.narrow(0, 0, 45 - shift * (shift > 0));
      save_snapshot(group, format, spec);
    });
    EXPECT_THAT(errors, Each(HasSubstr("weight/model.embed.weight/weight")));
    EXPECT_TRUE(names_in(temp.path()).empty());
  }
}

TEST(Save, DifferentValuesOnRanksAreABug) {
  const TempFolder temp;
  PlainFormat format;
  const auto errors = run_ranks(2, [&](Group& group) {
    SnapshotSpec spec = share(make_state(1), temp.path(), group.rank(), 2);
    spec.items[0].value = std::int64_t{group.rank()};
    save_snapshot(group, format, spec);
  });
  EXPECT_THAT(errors, Each(HasSubstr("E-bug rank 1 and rank 0 save different values")));
}

TEST(Save, TheSameStepIsReplacedWhole) {
  const TempFolder temp(TempFolder::On::disk);
  PlainFormat format;
  save(temp.path(), 5, 1, format, 1);
  save(temp.path(), 5, 2, format, 2);
  EXPECT_THAT(names_in(temp.path()), ElementsAre("step-00000005"));
  const auto reader = SnapshotReader::open(temp / "step-00000005", format);
  EXPECT_EQ(difference(*reader, make_state(2), 1), "");
  EXPECT_TRUE(verify_snapshot(temp / "step-00000005").empty());
}

TEST(Save, SomethingElseUnderTheNameOfTheStepIsLeftAlone) {
  const TempFolder temp;
  PlainFormat format;
  fs::create_directory(temp / "step-00000005");
  write_file(temp / "step-00000005/notes.txt", "mine");
  EXPECT_THROW(save(temp.path(), 5, 2, format), Error);
  EXPECT_EQ(read_file(temp / "step-00000005/notes.txt"), "mine");
  EXPECT_THAT(names_in(temp.path()), ElementsAre("step-00000005"));
}

TEST(Save, LeftOversOfCrashedSavesAreRemoved) {
  const TempFolder temp;
  PlainFormat format;
  for (const char* name : {".saving-00000005", ".saving-00000009", ".deleting-00000001", ".saving-mine"}) {
    fs::create_directory(temp / name);
    write_file(temp / (std::string(name) + "/data-0-of-1"), "old");
  }
  save(temp.path(), 5, 1, format);
  EXPECT_THAT(names_in(temp.path()), ElementsAre(".saving-mine", "step-00000005"));
}

TEST(Save, AFormatThatTakesANameOfOursIsRefused) {
  const TempFolder temp;
  PlainFormat format;
  format.at = [&](const std::string& point, int) {
    if (point == "finish") write_file(temp / ".saving-00000005/manifest.json", "{}");
  };
  EXPECT_THROW(save(temp.path(), 5, 1, format), Error);
  EXPECT_TRUE(names_in(temp.path()).empty());
}

}  // namespace
}  // namespace shale::test

#include "core/checkpoint/manifest.h"

#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/json.h"
#include "support.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

class ManifestFile : public ::testing::Test {
 protected:
  ManifestFile() {
    Folder::for_writing(temp.path());
    const auto folder = Folder::for_writing(temp.path());
    write_manifest(*folder, {"plain", 100, 3, {"sharding full_shard"}, {{"a", 10, "aa"}, {"b", 0, "bb"}}});
    folder->sync();
    text = read_file(temp / kManifestFile);
  }
  // "" when it is read, else the message; never anything but Error{checkpoint}.
  std::string attempt(const std::string& changed) {
    write_file(temp / kManifestFile, changed);
    try {
      read_manifest(*Folder::for_reading(temp.path()));
      return "";
    } catch (const Error& bad) {
      EXPECT_EQ(bad.code(), Code::checkpoint);
      EXPECT_EQ(std::string(bad.what()).find('\n'), std::string::npos) << bad.what();
      return bad.what();
    }
  }
  std::string resigned(Json json) {
    json.erase("checksum");
    json["checksum"] = hash_text(json_text(json, ""));
    return json_text(json, "");
  }
  TempFolder temp;
  std::string text;
};

TEST_F(ManifestFile, ComesBack) {
  const Manifest back = read_manifest(*Folder::for_reading(temp.path()));
  EXPECT_EQ(back.format, "plain");
  EXPECT_EQ(back.step, 100u);
  EXPECT_EQ(back.world, 3);
  ASSERT_EQ(back.files.size(), 2u);
  EXPECT_EQ(back.find("a")->bytes, 10u);
  EXPECT_EQ(back.find("c"), nullptr);
}

TEST_F(ManifestFile, EveryChangedByteIsNoticed) {
  for (std::size_t k = 0; k + 1 < text.size(); ++k) {
    if (text[k] == ' ' || text[k] == '\n') continue;  // layout only
    std::string changed = text;
    changed[k] = static_cast<char>(changed[k] ^ 1);
    EXPECT_NE(attempt(changed), "") << k;
  }
}

TEST_F(ManifestFile, EveryTruncationIsNoticed) {
  for (std::size_t n = 0; n + 1 < text.size(); ++n) EXPECT_NE(attempt(text.substr(0, n)), "") << n;
}

TEST_F(ManifestFile, SignedNonsenseIsRefusedByName) {
  const Json good = parse_json(text, "");
  const auto with = [&](const char* key, Json value) {
    Json json = good;
    json[key] = std::move(value);
    return attempt(resigned(std::move(json)));
  };
  EXPECT_EQ(attempt(resigned(good)), "");
  EXPECT_THAT(with("manifest", 2), HasSubstr("version 2, this shale reads 1"));
  EXPECT_THAT(with("step", -1), HasSubstr("'step' is no count"));
  EXPECT_THAT(with("step", 1.5), HasSubstr("'step' is no count"));
  EXPECT_THAT(with("world", 0), HasSubstr("a world of 0 ranks"));
  EXPECT_THAT(with("format", 3), HasSubstr("'format' is no text"));
  EXPECT_THAT(with("files", "none"), HasSubstr("'files' is no list"));
  EXPECT_THAT(with("files", {1}), HasSubstr("'name' is missing"));
  EXPECT_THAT(with("plugins", {1}), HasSubstr("'plugins'"));
  const Json file{{"name", "a"}, {"bytes", 1}, {"hash", "x"}};
  EXPECT_THAT(with("files", {file, file}), HasSubstr("listed twice"));
  EXPECT_THAT(with("files", {{{"name", "../a"}, {"bytes", 1}, {"hash", "x"}}}), HasSubstr("holds '/'"));
  EXPECT_THAT(attempt("[]"), HasSubstr("'checksum' is missing"));
  EXPECT_THAT(attempt(std::string(100000, '[')), HasSubstr("nested more than"));
  EXPECT_THAT(attempt("{\"checksum\": \"\xff\"}"), HasSubstr("no valid JSON"));
}

TEST_F(ManifestFile, SurvivesThousandsOfMutations) {
  std::mt19937 random(11);
  const Json good = parse_json(text, "");
  for (int round = 0; round < 4000; ++round) {
    std::string changed = text;
    for (int k = 0; k < 1 + static_cast<int>(random() % 4); ++k) {
      const std::size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, random() % 9);
          break;
        case 2:
          changed.insert(at, changed.substr(random() % changed.size(), random() % 30));
          break;
        default:
          changed.insert(at, "9999999999999999999999");
          break;
      }
    }
    if (round % 2 == 0) {  // get past the checksum
      const Json json = Json::parse(changed, nullptr, false);
      if (json.is_object()) try {
          changed = resigned(json);
        } catch (const Error&) {
        }
    }
    attempt(changed);
  }
}

TEST(StepNames, OnlyOurSpellingCounts) {
  EXPECT_EQ(step_name(100), "step-00000100");
  EXPECT_EQ(step_of_name("step-00000100"), 100u);
  EXPECT_EQ(step_of_name(step_name(123456789)), 123456789u);
  EXPECT_EQ(step_of_name(step_name(~std::uint64_t{0})), ~std::uint64_t{0});
  for (const char* name :
       {"step-100", "step-100.tmp", "step-00000100.tmp", "tmp_step-00000100", "step-000000100", "step-",
        "step--0000001", "step-0000010x", "Step-00000100", ".saving-00000100", "step-99999999999999999999"})
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
  EXPECT_TRUE(is_left_over(saving_name(3)));
  EXPECT_TRUE(is_left_over(deleting_name(3)));
  EXPECT_FALSE(is_left_over(".saving-mine"));
  EXPECT_FALSE(is_left_over(step_name(3)));
  EXPECT_EQ(saving_name(7).find("step-"), std::string::npos);
}

}  // namespace
}  // namespace shale::test

// The sharded format through the loader that a run uses.
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <set>

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"
#include "core/loader/plugins.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sharded : public ::testing::Test {
 protected:
  Sharded() { format = load_format("sharded", PluginPaths{{SHALE_PLUGIN_DIR}}, log); }

  void save_one(int world) {
    save(temp.path(), 1, world, *format);
    path = temp / "step-00000001";
  }

  // "" when all of it reads, else the message; never anything but Error{checkpoint}.
  std::string attempt(bool foreign = true) {
    try {
      const auto reader = foreign ? SnapshotReader::open_foreign(path, *format) : SnapshotReader::open(path, *format);
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

  std::string with_index(const std::function<void(Json&)>& change) {
    const std::string good = read_file(path + "/index.json");
    Json json = Json::parse(good);
    change(json);
    write_file(path + "/index.json", json.dump());
    const std::string error = attempt();
    write_file(path + "/index.json", good);
    return error;
  }

  Log log;
  TempFolder temp;
  std::unique_ptr<CheckpointFormat> format;
  std::string path;
};

Json& item_named(Json& json, const std::string& name) {
  for (Json& item : json["items"])
    if (item["name"] == name) return item;
  return json["items"][0];
}

TEST_F(Sharded, AnyWorldReadsWhatAnyWorldWrote) {
  for (const int world : {1, 2, 3, 6}) {
    save_one(world);
    EXPECT_THAT(Folder::for_reading(temp.path())->list(), ElementsAre("step-00000001"));
    const auto reader = SnapshotReader::open(path, *format);
    for (const int readers : {1, 2, 3, 5, 8}) EXPECT_EQ(difference(*reader, make_state(1), readers), "") << world;
    EXPECT_EQ(reader->read_bytes(*reader->find(ItemRole::run, "run", "rng.rank_0")), std::string("\0\xff\n\"x", 5));
    EXPECT_EQ(std::get<std::int64_t>(reader->find(ItemRole::run, "run", "step")->value), 7);
    EXPECT_EQ(reader->find(ItemRole::weight, "lm_head.weight", "weight")->alias_of, "model.embed.weight");
    EXPECT_TRUE(verify_snapshot(path).empty());
  }
}

TEST_F(Sharded, ValuesOfEveryTypeComeBackExactly) {
  const std::vector<ItemValue> values{std::int64_t{INT64_MIN},
                                      std::int64_t{INT64_MAX},
                                      0.1,
                                      -0.0,
                                      5e-324,
                                      std::numeric_limits<double>::infinity(),
                                      std::string("a \"b\"\n\u00e9"),
                                      std::string()};
  run_ranks(1, [&](Group& group) {
    SnapshotSpec spec = share(make_state(1), temp.path(), 0, 1);
    for (std::size_t k = 0; k < values.size(); ++k)
      spec.items.push_back({ItemKind::value, ItemRole::run, "run", str("v", k), at::kByte, {}, values[k], ""});
    save_snapshot(group, *format, spec);
  });
  const auto reader = SnapshotReader::open(temp / "step-00000000", *format);
  for (std::size_t k = 0; k < values.size(); ++k)
    EXPECT_EQ(reader->find(ItemRole::run, "run", str("v", k))->value, values[k]) << k;
  EXPECT_FALSE(fs::exists(temp / "step-00000000/run.json") &&
               read_file(temp / "step-00000000/run.json").find("\"v0\"") != std::string::npos);
}

TEST_F(Sharded, DataFilesAreValidSafetensors) {
  save_one(3);
  for (const char* name : {"data-00000-of-00003.safetensors", "data-00001-of-00003.safetensors"}) {
    const std::string file = read_file(path + "/" + name);
    std::uint64_t length = 0;
    ASSERT_GT(file.size(), 8u);
    std::memcpy(&length, file.data(), 8);
    ASSERT_LE(length, file.size() - 8);
    EXPECT_EQ((8 + length) % 64, 0u);
    const Json header = Json::parse(file.substr(8, length));
    EXPECT_EQ(header["__metadata__"]["format"], "pt");
    std::set<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [key, tensor] : header.items()) {
      if (key == "__metadata__") continue;
      std::uint64_t elements = 1;
      for (const std::uint64_t dim : tensor["shape"]) elements *= dim;
      const std::uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      const std::string dtype = tensor["dtype"];
      const std::uint64_t width = dtype == "U8" ? 1 : std::stoul(dtype.substr(dtype.find_first_of("1346"))) / 8;
      EXPECT_EQ(end - begin, elements * width) << key;
      EXPECT_EQ(begin % width, 0u) << key;
      ranges.insert({begin, end});
    }
    std::uint64_t at = 0;  // neither holes nor overlaps, and nothing behind
    for (const auto& [begin, end] : ranges) EXPECT_EQ(begin, std::exchange(at, end));
    EXPECT_EQ(at, file.size() - 8 - length);
  }
}

TEST_F(Sharded, ProbeKnowsItsOwn) {
  save_one(1);
  EXPECT_EQ(format->probe(*Folder::for_reading(path)), 2);
  EXPECT_EQ(format->probe(*Folder::for_reading(temp.path())), 0);
}

TEST_F(Sharded, FilesOfAnotherPlaceOrStepAreNoticed) {
  save_one(2);
  const std::string a = path + "/data-00000-of-00002.safetensors", b = path + "/data-00001-of-00002.safetensors";
  const std::string kept = read_file(a);
  write_file(a, read_file(b));
  EXPECT_THAT(attempt(), HasSubstr("its header is not the one"));
  save(temp.path(), 2, 2, *format);
  write_file(a, read_file(temp / "step-00000002/data-00000-of-00002.safetensors"));
  EXPECT_EQ(read_file(a).size(), kept.size());
  EXPECT_THAT(attempt(false), AnyOf(HasSubstr("its header is not the one"), HasSubstr("the bytes were changed")));
  write_file(a, kept.substr(0, 100));
  EXPECT_THAT(attempt(), HasSubstr("a header of"));
  write_file(a, "");
  EXPECT_NE(attempt(), "");
  fs::remove(a);
  EXPECT_NE(attempt(), "");
}

TEST_F(Sharded, NonsenseInTheIndexIsRefused) {
  save_one(2);
  ASSERT_EQ(with_index([](Json&) {}), "");
  const auto embed = [](Json& json) -> Json& { return item_named(json, "model.embed.weight"); };
  EXPECT_THAT(with_index([](Json& j) { j["version"] = 2; }), HasSubstr("version"));
  EXPECT_THAT(with_index([](Json& j) { j["format"] = "x"; }), HasSubstr("no index of this format"));
  EXPECT_THAT(with_index([](Json& j) { j.erase("items"); }), HasSubstr("'items' is missing"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["dtype"] = "f32"; }), HasSubstr("unknown dtype"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["dtype"] = "F64"; }), AnyOf(HasSubstr("outside"), HasSubstr("kind")));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["shape"][0] = -1; }), HasSubstr("out of range"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["shape"][0] = 1e3; }), HasSubstr("out of range"));
  EXPECT_THAT(with_index([](Json& j) { item_named(j, "model.norm")["shape"][0] = 6; }), HasSubstr("missing"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["shape"] = std::vector<int>(9, 1); }), HasSubstr("more than 8"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["boxes"][0]["file"] = 7; }), HasSubstr("'file' is out of range"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["boxes"][0]["offset"] = 1u << 30; }), HasSubstr("outside"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["boxes"][0]["begin"] = {0}; }), HasSubstr("differ in length"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["boxes"].erase(0); }), HasSubstr("data is missing"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["boxes"].push_back(Json(embed(j)["boxes"][0])); }),
              HasSubstr("overlap"));
  EXPECT_THAT(with_index([&](Json& j) { j["items"].push_back(Json(embed(j))); }), HasSubstr("twice"));
  EXPECT_THAT(with_index([](Json& j) { j["files"][0]["name"] = "../data"; }), HasSubstr("plain file name"));
  EXPECT_THAT(with_index([&](Json& j) { embed(j)["name"] = "a b"; }), HasSubstr("name"));
  write_file(path + "/index.json", std::string(1 << 20, '['));
  EXPECT_THAT(attempt(), HasSubstr("too deep"));
  write_file(path + "/index.json", "{\"format\": \"\xff\"}");
  EXPECT_THAT(attempt(), HasSubstr("no valid JSON"));
}

TEST_F(Sharded, IndexesAndHeadersSurviveThousandsOfMutations) {
  save_one(2);
  std::mt19937 random(31);
  int opened = 0, rounds = 0;
  for (const std::string& name : {std::string("index.json"), std::string("data-00001-of-00002.safetensors")}) {
    const std::string good = read_file(path + "/" + name);
    for (int round = 0; round < (name == "index.json" ? 4000 : 1000); ++round, ++rounds) {
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
            text.erase(at, random() % 20);
            break;
          case 3:
            text.insert(at, text.substr(random() % text.size(), random() % 60));
            break;
          default:
            text.insert(at, random() % 2 ? "9223372036854775807" : "-");
            break;
        }
      }
      write_file(path + "/" + name, text);
      opened += attempt().empty();
    }
    write_file(path + "/" + name, good);
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, rounds);
}

}  // namespace
}  // namespace shale::test

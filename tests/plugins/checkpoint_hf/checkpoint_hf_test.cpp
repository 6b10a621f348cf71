// The Hugging Face folder through the loader that a run uses: what is written, what is read, what is refused.
#include <filesystem>
#include <random>

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/checkpoint/snapshot.h"
#include "core/loader/plugins.h"
#include "support.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(std::string header, const std::string& data, int padding = 0) {
  header.append(static_cast<std::size_t>(padding), ' ');
  std::string length(8, '\0');
  for (std::size_t k = 0; k < 8; ++k) length[k] = static_cast<char>(header.size() >> (8 * k));
  return length + header + data;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

class HuggingFace : public ::testing::Test {
 protected:
  HuggingFace() : format(load_format("hf", PluginPaths{{SHALE_PLUGIN_DIR}}, log)), path(temp / "model") {
    fs::create_directory(path);
  }

  void put(const std::string& name, const std::string& bytes) { write_file(path + "/" + name, bytes); }

  // "" when all of it reads, else the message; never anything but Error{checkpoint} in one line.
  std::string attempt() {
    try {
      const auto reader = SnapshotReader::open_foreign(path, *format);
      for (const Item& item : reader->items())
        if (whole(item.shape).numel() <= 1 << 20)
          reader->read(item, 0, at::empty({whole(item.shape).numel()}, at::TensorOptions().dtype(item.dtype)));
      return "";
    } catch (const Error& bad) {
      EXPECT_EQ(bad.code(), Code::checkpoint) << bad.what();
      EXPECT_EQ(std::string(bad.what()).find('\n'), std::string::npos) << bad.what();
      return bad.what();
    }
  }

  std::string header(const std::string& text, std::size_t data = 8) {
    put("model.safetensors", file_of(text, std::string(data, 'x')));
    return attempt();
  }
  std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return header(R"({"a":)" + tensor(dtype, shape, offsets) + "}");
  }

  void put_shards() {
    put("model-00001-of-00002.safetensors", file_of(R"({"a":)" + tensor("F32", "[2]", "[0,8]") + "}", "aaaaaaaa"));
    put("model-00002-of-00002.safetensors", file_of(R"({"b":)" + tensor("F32", "[1]", "[0,4]") + "}", "bbbb"));
  }
  std::string index(const std::string& text) {
    put("model.safetensors.index.json", text);
    return attempt();
  }
  std::string mapped(const std::string& a, const std::string& b) {
    return index(Json{{"metadata", {{"total_size", 12}}}, {"weight_map", {{"a", a}, {"b", b}}}}.dump());
  }

  Log log;
  TempFolder temp;
  std::unique_ptr<CheckpointFormat> format;
  std::string path;
};

std::vector<State> weights() {
  std::vector<State> out;
  for (State& s : make_state(1))
    if (s.item.role == ItemRole::weight) out.push_back(std::move(s));
  return out;
}

// Each tensor is on one rank: bringing the parts of a cut one together is the core's and tested there.
void save_weights(const std::string& root, int world, CheckpointFormat& format) {
  const std::vector<State> state = weights();
  const auto errors = run_ranks(world, [&](Group& group) {
    SnapshotSpec spec = share(state, root, 0, 1);
    std::vector<Piece> mine;
    for (std::size_t k = 0; k < spec.pieces.size(); ++k)
      if (static_cast<int>(k) % world == group.rank()) mine.push_back(spec.pieces[k]);
    spec.pieces = std::move(mine);
    save_snapshot(group, format, spec);
  });
  for (const std::string& error : errors)
    if (!error.empty()) fail(Code::io, error);
}

Json header_of(const std::string& file) {
  const std::string bytes = read_file(file);
  std::uint64_t length = 0;
  for (std::size_t k = 8; k-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes.at(k));
  EXPECT_EQ(length % 8, 0u);
  return Json::parse(bytes.substr(8, length));
}

TEST_F(HuggingFace, AnyWorldReadsWhatAnyWorldWrote) {
  for (const int world : {1, 2, 3, 5}) {
    save_weights(temp.path(), world, *format);
    const std::string made = temp / "step-00000000";
    const auto reader = SnapshotReader::open(made, *format);
    for (const int readers : {1, 2, 3, 8}) EXPECT_EQ(difference(*reader, weights(), readers), "") << world;
    EXPECT_EQ(std::get<std::int64_t>(reader->find(ItemRole::run, "run", "step")->value), 7);
    EXPECT_TRUE(verify_snapshot(made).empty());
    const auto foreign = SnapshotReader::open_foreign(made, *format);
    EXPECT_EQ(difference(*foreign, weights(), 2), "");
    EXPECT_EQ(foreign->items().size(), weights().size());  // the tied one is not there twice
    EXPECT_EQ(format->probe(*Folder::for_reading(made)), 2);
    EXPECT_EQ(Json::parse(read_file(made + "/config.json")), Json({{"model_type", "llama"}}));
  }
}

TEST_F(HuggingFace, OneFileOrSeveralWithAnIndex) {
  save_weights(temp.path(), 1, *format);
  const std::string made = temp / "step-00000000";
  EXPECT_FALSE(fs::exists(made + "/model.safetensors.index.json"));
  const Json alone = header_of(made + "/model.safetensors");
  EXPECT_EQ(alone["__metadata__"], Json({{"format", "pt"}}));
  EXPECT_EQ(alone["model.embed.weight"]["shape"], Json({13, 7}));
  EXPECT_EQ(alone["model.norm"]["data_offsets"], Json({0, 40}));  // widest first
  save_weights(temp.path(), 3, *format);
  const Json index = Json::parse(read_file(made + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 13 * 7 * 4 + 60 * 2 + 5 * 8 + 4 + 4);
  EXPECT_EQ(index["weight_map"].size(), weights().size());
  for (const auto& [name, file] : index["weight_map"].items())
    EXPECT_TRUE(header_of(made + "/" + file.get<std::string>()).contains(name)) << name;
  EXPECT_TRUE(fs::exists(made + "/model-00001-of-00003.safetensors"));
}

TEST_F(HuggingFace, TheConfigTellsTheTypeOfTheWeights) {
  Item item;
  item.name = "w", item.key = "weight", item.dtype = at::kBFloat16, item.shape = {3};
  run_ranks(1, [&](Group& group) {
    SnapshotSpec spec;
    spec.root = temp.path(), spec.model_json = R"({"z": 1e-05, "dtype": "float32", "a": 1})";
    spec.pieces.push_back({item, 0, at::empty({3}, at::TensorOptions(at::kBFloat16)).zero_()});
    save_snapshot(group, *format, spec);
  });
  EXPECT_EQ(read_file(temp / "step-00000000/config.json"),
            "{\n  \"z\": 1e-05,\n  \"a\": 1,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
}

TEST_F(HuggingFace, AssetsAreCopiedByName) {
  const std::string tokenizer((3 << 20) + 1, 't');
  put("tokenizer.json", tokenizer), put("generation_config.json", ""), put("other.json", "{}"), put("config.json", "x");
  Item item;
  item.name = "w", item.key = "weight", item.shape = {3};
  run_ranks(1, [&](Group& group) {
    SnapshotSpec spec;
    spec.root = temp.path(), spec.model_json = "{}", spec.assets = path;
    spec.pieces.push_back({item, 0, at::empty({3}, at::TensorOptions(at::kFloat)).zero_()});
    save_snapshot(group, *format, spec);
  });
  const std::string made = temp / "step-00000000";
  EXPECT_THAT(Folder::for_reading(made)->list(), ElementsAre("config.json", "generation_config.json", "manifest.json",
                                                             "model.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(read_file(made + "/tokenizer.json"), tokenizer);
  EXPECT_THAT(read_file(made + "/config.json"), HasSubstr("float32"));
}

TEST_F(HuggingFace, HoldsNothingButWeights) {
  for (const ItemRole role : {ItemRole::optimizer, ItemRole::buffer, ItemRole::plugin}) {
    Item item;
    item.name = "w", item.key = "k", item.role = role, item.shape = {3};
    const auto errors = run_ranks(1, [&](Group& group) {
      SnapshotSpec spec;
      spec.root = temp.path();
      spec.pieces.push_back({item, 0, at::empty({3}, at::TensorOptions(at::kFloat)).zero_()});
      save_snapshot(group, *format, spec);
    });
    EXPECT_THAT(errors[0], HasSubstr(role == ItemRole::optimizer
                                         ? "optimizer/w/k: the checkpoint format 'hf' cannot hold optimizer state"
                                         : "w k: is no weight, and this format holds nothing else"));
  }
  EXPECT_FALSE(fs::exists(temp / "step-00000000"));
}

TEST_F(HuggingFace, FilesThatSafetensorsAllowsAreRead) {
  EXPECT_EQ(header("{}", 0), "");
  EXPECT_EQ(header(R"({"__metadata__":null})", 0), "");
  EXPECT_EQ(one("F64", "[]", "[0,8]"), "");
  EXPECT_EQ(one("F8_E4M3", "[2,4]", "[0,8]"), "");
  EXPECT_EQ(header(R"({"b":)" + tensor("BF16", "[2]", "[4,8]") + R"(,"a":)" + tensor("F16", "[2]", "[0,4]") +
                   R"(,"c":)" + tensor("F32", "[0,3]", "[4,4]") + R"(,"__metadata__":{"x":"y"}})"),
            "");
  EXPECT_EQ(header(R"({"a":{"more":[{"x":[1]},null],"shape":[2],"dtype":"F32","data_offsets":[0,8]}})"), "");
  put("model.safetensors", file_of(R"({"a":)" + tensor("F32", "[2]", "[0,8]") + "}\n", "xxxxxxxx", 3));
  EXPECT_EQ(attempt(), "");
  EXPECT_EQ(header(R"({"model.layers.0.self_attn.rotary_emb.inv_freq":)" + tensor("F32", "[2]", "[0,8]") + "}"), "");
  EXPECT_TRUE(SnapshotReader::open_foreign(path, *format)->items().empty());
}

TEST_F(HuggingFace, BrokenHeadersAreRefused) {
  const auto is = [](const std::string& text) { return HasSubstr("model.safetensors: " + text); };
  put("model.safetensors", "1234567");
  EXPECT_THAT(attempt(), is("is no safetensors file: it has 7 bytes"));
  put("model.safetensors", std::string(8, '\0'));
  EXPECT_THAT(attempt(), is("has a header of 0 bytes in a file of 8: it is no safetensors file or cut off"));
  put("model.safetensors", std::string(8, '\xff') + "{}");
  EXPECT_THAT(attempt(), is("has a header of 18446744073709551615 bytes in a file of 10"));
  put("model.safetensors", std::string("\x03\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(attempt(), is("has a header of 3 bytes in a file of 10"));
  EXPECT_THAT(header("[]"), is("its header does not begin with '{'"));
  EXPECT_THAT(header(" {}"), is("its header does not begin with '{'"));
  EXPECT_THAT(header("\xef\xbb\xbf{}"), is("its header does not begin with '{'"));
  EXPECT_THAT(header(std::string("{}\0", 3), 0), is("is no valid JSON: it holds a zero byte"));
  EXPECT_THAT(header("{\"a\xff\":{}}"), is("is no valid JSON: byte 4"));
  EXPECT_THAT(header("{} {}"), is("is no valid JSON: byte 4"));
  EXPECT_THAT(header(R"({"a":{"dtype":NaN}})"), is("is no valid JSON: byte 15"));
  EXPECT_THAT(header("{\"a\":{\"x\":" + std::string(1 << 20, '[')), is("is nested too deep"));
  EXPECT_THAT(header(R"({"a":1})"), is("its tensor 'a' is described by no JSON object"));
  EXPECT_THAT(header(R"({"a":[]})"), is("its tensor 'a' is described by no JSON object"));
  EXPECT_THAT(header(R"({"__metadata__":{"x":1}})"), is("its header: __metadata__ holds something else than texts"));
  EXPECT_THAT(header(R"({"__metadata__":)" + tensor("F32", "[2]", "[0,8]") + "}"),
              is("its header: __metadata__ holds something else than texts"));
}

TEST_F(HuggingFace, BrokenTensorsAreRefused) {
  const auto is = [](const std::string& text) { return HasSubstr("model.safetensors: its tensor 'a' " + text); };
  EXPECT_THAT(header(R"({"a":{"shape":[2],"data_offsets":[0,8]}})"), is("has no 'dtype'"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), is("has no 'shape'"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[2]}})"), is("has no 'data_offsets'"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              is("has 'dtype' twice"));
  EXPECT_THAT(one("f32", "[2]", "[0,8]"), is("has dtype 'f32', which is none that is read here"));
  EXPECT_THAT(one("F4", "[16]", "[0,8]"), is("has dtype 'F4', which is none that is read here"));
  EXPECT_THAT(header(R"({"a":{"dtype":4}})"), is("has a dtype that is no text"));
  EXPECT_THAT(one("F32", "[-2]", "[0,8]"), is("has a shape that is no list of whole numbers from 0"));
  EXPECT_THAT(one("F32", "[2.0]", "[0,8]"), is("has a shape that is no list of whole numbers from 0"));
  EXPECT_THAT(one("F32", "[[2]]", "[0,8]"), is("has a shape that is no list of whole numbers from 0"));
  EXPECT_THAT(one("F32", "2", "[0,8]"), is("has a shape that is no list of whole numbers from 0"));
  EXPECT_THAT(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), is("has more than 8 dimensions"));
  EXPECT_THAT(one("F32", "[0,9223372036854775808,2]", "[0,0]"), is("has a number above 2^63"));
  EXPECT_THAT(one("F32", "[4294967296,4294967296]", "[0,8]"), is("has a shape of more than 2^63 bytes"));
  EXPECT_THAT(one("F32", "[4294967296,4294967296,0]", "[0,0]"), is("has a shape of more than 2^63 bytes"));
  EXPECT_THAT(one("F32", "[2]", "[0]"), is("has not two data_offsets"));
  EXPECT_THAT(one("F32", "[2]", "[0,8,8]"), is("has more than two data_offsets"));
  EXPECT_THAT(one("F32", "[2]", "[0,-8]"), is("has data_offsets that are no list of whole numbers from 0"));
  EXPECT_THAT(one("F32", "[2]", "[8,0]"), is("ends before it begins: [8, 0)"));
  EXPECT_THAT(one("F32", "[3]", "[0,12]"), is("lies at [0, 12) of 8 bytes of data: the file is cut off"));
  EXPECT_THAT(one("F32", "[3]", "[0,8]"), is("lies at [0, 8), its shape takes 12 bytes"));
}

TEST_F(HuggingFace, HolesOverlapsAndDuplicatesAreRefused) {
  const auto two = [&](const std::string& a, const std::string& b, const char* second = "b") {
    return header(R"({"a":)" + tensor("F32", "[1]", a) + ",\"" + second + "\":" + tensor("F32", "[1]", b) + "}");
  };
  EXPECT_EQ(two("[0,4]", "[4,8]"), "");
  EXPECT_THAT(one("F32", "[1]", "[4,8]"), HasSubstr("has a hole of unused bytes before its tensor 'a'"));
  EXPECT_THAT(one("F32", "[1]", "[0,4]"), HasSubstr("has 4 bytes behind its last tensor"));
  EXPECT_THAT(two("[0,4]", "[2,6]"), HasSubstr("its tensor 'b' overlaps another: it begins at 2 of the data"));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("overlaps another: it begins at 0 of the data"));
  EXPECT_THAT(two("[0,4]", "[4,8]", "a"), HasSubstr("has the tensor 'a' twice"));
  EXPECT_THAT(two("[0,4]", "[4,8]", ""), HasSubstr("name"));
  EXPECT_THAT(two("[0,4]", "[4,8]", "a\\nb"), HasSubstr("name"));
}

TEST_F(HuggingFace, AnIndexMustAgreeWithItsFiles) {
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  const auto is = [](const std::string& text) { return HasSubstr("model.safetensors.index.json: " + text); };
  put_shards();
  EXPECT_THAT(attempt(), HasSubstr("model.safetensors: is not there, nor model.safetensors.index.json"));
  EXPECT_EQ(mapped(first, second), "");
  EXPECT_THAT(mapped(second, first), HasSubstr(first + ": holds the tensor 'a', which the index places in " + second));
  EXPECT_THAT(mapped(first, "model-00003.safetensors"),
              is("names the file 'model-00003.safetensors', which is not there"));
  for (const char* name : {"../b.safetensors", "/b.safetensors", "b\\c.safetensors", "b", ""})
    EXPECT_THAT(mapped(first, name), is(std::string("names the file '") + name + "', which is no plain name"));
  EXPECT_THAT(index(R"({"weight_map":{"a":")" + first + R"("}})"), "");  // the second file is not asked for
  EXPECT_THAT(index(R"({"weight_map":{"a":")" + first + R"(","b":")" + second + R"(","c":")" + second + R"("}})"),
              is("places 'c' in " + second + ", which does not hold it"));
  EXPECT_THAT(index(R"({"weight_map":{"x":")" + second + R"("}})"),
              HasSubstr(second + ": holds the tensor 'b', which the index does not list"));
  EXPECT_THAT(index(R"({"weight_map":{"a":")" + first + R"(","a":")" + second + R"("}})"),
              is("has the tensor 'a' twice"));
  EXPECT_THAT(index("{}"), is("has no 'weight_map'"));
  EXPECT_THAT(index("[]"), is("is no JSON object"));
  EXPECT_THAT(index(R"({"weight_map":[]})"), is("its 'weight_map' is no object of names of files"));
  EXPECT_THAT(index(R"({"weight_map":{"a":1}})"), is("its 'weight_map' is no object of names of files"));
  EXPECT_THAT(index(R"({"weight_map":{},"weight_map":{}})"), is("has 'weight_map' twice"));
  EXPECT_THAT(index("{"), is("is no valid JSON: byte 2"));
  ASSERT_EQ(mapped(first, second), "");
  put("model.safetensors", file_of("{}", ""));
  EXPECT_THAT(attempt(), is("is there beside model.safetensors; remove what is not the model"));
}

TEST_F(HuggingFace, ProbeTellsFoldersApart) {
  EXPECT_EQ(format->probe(*Folder::for_reading(path)), 0);
  put("model.safetensors.index.json", "{}");
  EXPECT_EQ(format->probe(*Folder::for_reading(path)), 1);
  put("config.json", "{}");
  EXPECT_EQ(format->probe(*Folder::for_reading(path)), 2);
}

void mutate(std::string& text, std::mt19937& random) {
  for (int k = 0; k < 1 + static_cast<int>(random() % 3); ++k) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 5) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>('0' + random() % 10);
        break;
      case 2:
        text.erase(at, random() % 20);
        break;
      case 3:
        text.insert(at, text.substr(random() % (text.size() + 1), random() % 60));
        break;
      default:
        text.insert(at, random() % 2 ? "9223372036854775807" : "-");
        break;
    }
  }
}

TEST_F(HuggingFace, ThousandsOfMutationsAreReadOrRefused) {
  put_shards();
  ASSERT_EQ(mapped("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"), "");
  std::mt19937 random(31);
  int opened = 0, rounds = 0;
  for (const char* name : {"model.safetensors.index.json", "model-00001-of-00002.safetensors"}) {
    const std::string good = read_file(path + "/" + name);
    for (int round = 0; round < 3000; ++round, ++rounds) {
      std::string text = good;
      mutate(text, random);
      put(name, text);
      opened += attempt().empty();
    }
    put(name, good);
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, rounds / 2);
}

}  // namespace
}  // namespace shale::test

#include "core/model/weights_file.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQueryBias = "model.layers.0.self_attn.q_proj.bias";

void open_and_match(const TempFolder& folder, const Architecture& a) {
  WeightsFolder::open(folder.path())->match(describe(a), a);
}

std::string refusal(const TempFolder& folder, const Architecture& a = small_llama()) {
  const std::string text = error_of(Code::input, [&] { open_and_match(folder, a); });
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

std::string refusal(const Tensors& tensors, const Architecture& a = small_llama()) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors(tensors));
  return refusal(folder, a);
}

// Writes tensors over several files with an index; returns the index for a test to spoil.
nlohmann::json write_shards(const TempFolder& folder, const Tensors& tensors, std::size_t files) {
  std::vector<Tensors> parts(files);
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", nlohmann::json::object()}};
  std::size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    index["weight_map"][name] = str("part-", i % files, ".safetensors");
    parts[i++ % files][name] = tensor;
  }
  for (i = 0; i < files; ++i) folder.write(str("part-", i, ".safetensors"), safetensors(parts[i]));
  folder.write("model.safetensors.index.json", index.dump());
  return index;
}

void write_index(const TempFolder& folder, const nlohmann::json& index) {
  folder.write("model.safetensors.index.json", index.dump());
}

std::vector<float> floats(const at::Tensor& tensor) {
  const at::Tensor x = tensor.to(at::kFloat).contiguous();
  return {x.data_ptr<float>(), x.data_ptr<float>() + x.numel()};
}

TEST(WeightsFolder, ReadsRangesOfOneFile) {
  TempFolder folder;
  const Tensors tensors = tensors_of(small_llama());
  folder.write("model.safetensors", safetensors(tensors));
  const auto weights = WeightsFolder::open(folder.path());
  weights->match(describe(small_llama()), small_llama());
  for (const auto& [name, tensor] : tensors) {
    const auto n = static_cast<std::int64_t>(tensor.values.size());
    EXPECT_EQ(floats(weights->read(name, 0, n)), tensor.values) << name;
    EXPECT_EQ(floats(weights->read(name, 5, 9)),
              std::vector<float>(tensor.values.begin() + 5, tensor.values.begin() + 9));
    EXPECT_EQ(weights->read(name, n, n).numel(), 0);
  }
}

TEST(WeightsFolder, ReadsRangesOfSeveralFiles) {
  TempFolder folder;
  const Tensors tensors = tensors_of(small_llama());
  write_shards(folder, tensors, 4);
  const auto weights = WeightsFolder::open(folder.path());
  weights->match(describe(small_llama()), small_llama());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(floats(weights->read(name, 1, 3)),
              std::vector<float>(tensor.values.begin() + 1, tensor.values.begin() + 3));
  }
}

TEST(WeightsFolder, KeepsTheDtypeOfTheFile) {
  TempFolder folder;
  const double wide[] = {1.5, -2.25};
  std::string data("\x80\x3f\x00\xc0", 4);     // bfloat16 1, -2
  data += std::string("\x00\x3c\x00\xc0", 4);  // float16 1, -2
  data.append(reinterpret_cast<const char*>(wide), 16);
  folder.write("model.safetensors", safetensors(R"({"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                               "h": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]},
                               "d": {"dtype": "F64", "shape": [2], "data_offsets": [8, 24]}})",
                                                data));
  const auto weights = WeightsFolder::open(folder.path());
  EXPECT_EQ(weights->read("b", 0, 2).scalar_type(), at::kBFloat16);
  EXPECT_EQ(weights->read("h", 0, 2).scalar_type(), at::kHalf);
  EXPECT_EQ(weights->read("d", 0, 2).scalar_type(), at::kDouble);
  EXPECT_EQ(floats(weights->read("b", 0, 2)), (std::vector<float>{1, -2}));
  EXPECT_EQ(floats(weights->read("h", 1, 2)), (std::vector<float>{-2}));
  EXPECT_EQ(floats(weights->read("d", 0, 2)), (std::vector<float>{1.5, -2.25}));
}

TEST(WeightsFolder, ListsWhatIsMissingUnexpectedOrOfAnotherShape) {
  Tensors tensors = tensors_of(small_llama());
  tensors.erase("model.norm.weight");
  tensors["model.layers.2.input_layernorm.weight"] = {{24}, std::vector<float>(24)};
  tensors["model.layers.0.mlp.up_proj.weight"] = {{24, 56}, std::vector<float>(24 * 56)};
  EXPECT_THAT(refusal(tensors), AllOf(HasSubstr("tensor model.norm.weight [24] is missing"),
                                      HasSubstr("\"model.layers.2.input_layernorm.weight\" [24] is unexpected"),
                                      HasSubstr("up_proj.weight has shape [24,56], expected [56,24]")));
  EXPECT_THAT(refusal(Tensors{}), HasSubstr("and 13 more"));
}

TEST(WeightsFolder, RefusesIntegerParameters) {
  TempFolder folder;
  std::string bytes = safetensors(tensors_of(small_llama()));
  bytes.replace(bytes.find("\"F32\""), 5, "\"I32\"");
  folder.write("model.safetensors", bytes);
  EXPECT_THAT(refusal(folder), HasSubstr("has dtype I32, expected F32, BF16, F16 or F64"));
}

// C5: the tie flag and the tensor list disagree.
TEST(WeightsFolder, C5TiedHeads) {
  Architecture tied = small_llama();
  tied.tied = true;
  Tensors tensors = tensors_of(tied);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  TempFolder folder;
  folder.write("model.safetensors", safetensors(tensors));
  EXPECT_NO_THROW(open_and_match(folder, tied));
  tensors["lm_head.weight"].values.back() += 1;
  EXPECT_THAT(refusal(tensors, tied), HasSubstr("lm_head.weight [97,24] differs from model.embed_tokens.weight"));
  tensors["lm_head.weight"] = {{24}, std::vector<float>(24)};
  EXPECT_THAT(refusal(tensors, tied), HasSubstr("lm_head.weight [24] differs"));
  tensors.erase("lm_head.weight");
  EXPECT_THAT(refusal(tensors, small_llama()),
              HasSubstr("lm_head.weight [97,24] is missing (tie_word_embeddings is false or absent"));
}

// C27: rotary buffers are harmless, biases are not.
TEST(WeightsFolder, C27BuffersPassAndBiasesDoNot) {
  Tensors tensors = tensors_of(small_llama());
  for (const char* layer : {"0", "1"}) {
    tensors[str("model.layers.", layer, ".self_attn.rotary_emb.inv_freq")] = {{3}, {1, 0.1F, 0.01F}};
  }
  TempFolder folder;
  folder.write("model.safetensors", safetensors(tensors));
  EXPECT_NO_THROW(open_and_match(folder, small_llama()));

  tensors[kQueryBias] = {{24}, std::vector<float>(24, 1)};
  EXPECT_THAT(refusal(tensors), AllOf(HasSubstr(kQueryBias), HasSubstr("is attention_bias or mlp_bias missing")));

  Architecture biased = small_llama();
  biased.attention_bias = true;
  folder.write("model.safetensors", safetensors(tensors_of(biased)));
  EXPECT_NO_THROW(open_and_match(folder, biased));
  EXPECT_THAT(refusal(tensors_of(small_llama()), biased), HasSubstr("q_proj.bias [24] is missing"));
}

TEST(WeightsFolder, RefusesFoldersWithoutAModelOrWithTwo) {
  TempFolder folder;
  EXPECT_THAT(refusal(folder), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(refusal(folder), HasSubstr("pickle, which shale never reads"));
  write_shards(folder, tensors_of(small_llama()), 2);
  EXPECT_NO_THROW(open_and_match(folder, small_llama()));
  folder.write("model.safetensors", safetensors(tensors_of(small_llama())));
  EXPECT_THAT(refusal(folder), HasSubstr("has both"));
}

TEST(WeightsFolder, RefusesAnIndexThatDoesNotFitItsFiles) {
  TempFolder folder;
  const Tensors tensors = tensors_of(small_llama());
  const auto good = write_shards(folder, tensors, 2);
  const std::string first = tensors.begin()->first, file = good["weight_map"][first];

  auto index = good;
  index["weight_map"][first] = file == "part-0.safetensors" ? "part-1.safetensors" : "part-0.safetensors";
  write_index(folder, index);
  EXPECT_THAT(refusal(folder), HasSubstr("has no tensor \"" + first + "\", but model.safetensors.index.json says so"));

  index = good, index["weight_map"].erase(first);
  write_index(folder, index);
  EXPECT_THAT(refusal(folder), HasSubstr("tensor \"" + first + "\" is not in model.safetensors.index.json"));

  index = good, index["weight_map"]["extra"] = file;
  write_index(folder, index);
  EXPECT_THAT(refusal(folder), HasSubstr("has no tensor \"extra\""));

  index = good, index["weight_map"][first] = "part-7.safetensors";
  write_index(folder, index);
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("part-7.safetensors: is not there"), HasSubstr("fetch the missing")));

  folder.write("part-2.safetensors", safetensors(Tensors{{first, tensors.at(first)}}));
  index = good, index["weight_map"][first] = "part-2.safetensors";
  write_index(folder, index);
  EXPECT_THAT(refusal(folder), HasSubstr("tensor \"" + first + "\" is in two files"));
}

TEST(WeightsFolder, AnIndexNamesFilesOfItsOwnFolderOnly) {
  TempFolder outer;
  TempFolder folder;
  const std::string file = outer.write("x.safetensors", safetensors(tensors_of(small_llama())));
  for (const std::string& name : {file, "../" + file.substr(5), std::string("a/b.safetensors"), std::string(".."),
                                  std::string(".x.safetensors"), std::string("config.json"), std::string(),
                                  std::string("a\0.safetensors", 14), std::string("a\\b.safetensors")}) {
    write_index(folder, {{"weight_map", {{"model.norm.weight", name}}}});
    EXPECT_THAT(refusal(folder), HasSubstr("expected the name of a .safetensors file in the same folder")) << name;
  }
  write_index(folder, {{"weight_map", {{"model.norm.weight", 3}}}});
  EXPECT_THAT(refusal(folder), HasSubstr("said to be in 3"));
  for (const char* text : {"", "{}", "[]", "{\"weight_map\": []}", "{\"weight_map\": {\"a\": \"b\"", "null"}) {
    folder.write("model.safetensors.index.json", text);
    EXPECT_THAT(refusal(folder), HasSubstr("model.safetensors.index.json")) << text;
  }
}

TEST(WeightsFolder, AFileCutAfterOpeningIsAnError) {
  TempFolder folder;
  const std::string bytes = safetensors(tensors_of(small_llama()));
  folder.write("model.safetensors", bytes);
  const auto weights = WeightsFolder::open(folder.path());
  folder.write("model.safetensors", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error_of(Code::input, [&] { weights->read("model.norm.weight", 0, 24); }), HasSubstr("was cut"));
}

}  // namespace
}  // namespace shale::test

#include "core/model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

Architecture read(const std::string& config) {
  TempFolder folder;
  folder.write("config.json", config);
  return read_architecture(folder.path());
}

std::string refusal(const std::string& config) {
  const std::string text = error_of(Code::input, [&] { read(config); });
  EXPECT_THAT(text, HasSubstr("config.json"));
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

TEST(Flavor, EveryNameIsKnownAndSound) {
  for (const auto& name : flavor_names()) {
    const Architecture a = flavor(name);
    EXPECT_EQ(a.name, name);
    EXPECT_EQ(a.n_heads % a.n_kv_heads, 0) << name;
    EXPECT_EQ(a.head_dim * a.n_heads, a.dim) << name;
  }
}

TEST(Flavor, UnknownNameSuggestsTheNearest) {
  EXPECT_THAT(error_of(Code::config, [] { flavor("llama2-7bb"); }), HasSubstr("did you mean \"llama2-7b\"?"));
  EXPECT_THAT(error_of(Code::config, [] { flavor("zzzzzzzzzzz"); }), HasSubstr("debugmodel"));
}

TEST(ReadArchitecture, ReadsBackWhatConfigJsonWrites) {
  for (const auto& name : flavor_names()) {
    Architecture a = flavor(name);
    a.attention_bias = true, a.mlp_bias = true, a.norm_eps = 1e-6, a.init_std = 1.0 / 3;
    const Architecture b = read(config_json(a));
    EXPECT_EQ(config_json(a), config_json(b));
    EXPECT_EQ(b.init_std, a.init_std);
    EXPECT_EQ(b.rope_scaling.has_value(), a.rope_scaling.has_value());
  }
}

TEST(ReadArchitecture, AbsentAndNullKeysHaveTheDefaultsOfTransformers) {
  for (const char* config : {R"({"model_type": "llama"})",
                             R"({"model_type": "llama", "num_key_value_heads": null, "head_dim": null,
                                 "rope_scaling": null, "attention_bias": null})"}) {
    const Architecture a = read(config);
    EXPECT_EQ(a.vocab_size, 32000);
    EXPECT_EQ(a.dim, 4096);
    EXPECT_EQ(a.ffn_dim, 11008);
    EXPECT_EQ(a.n_layers, 32);
    EXPECT_EQ(a.n_kv_heads, 32);
    EXPECT_EQ(a.head_dim, 128);
    EXPECT_EQ(a.max_positions, 2048);
    EXPECT_EQ(a.norm_eps, 1e-6);
    EXPECT_EQ(a.rope_theta, 10000);
    EXPECT_FALSE(a.tied || a.attention_bias || a.mlp_bias || a.rope_scaling);
  }
}

// C23: the base stands in the old place or in the new block; a reader that misses it would use 10,000.
TEST(ReadArchitecture, FindsTheRotaryBaseInBothPlaces) {
  const std::string head = R"({"model_type": "llama", )";
  EXPECT_EQ(read(head + R"("rope_theta": 500000})").rope_theta, 500000);
  EXPECT_EQ(read(head + R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}})").rope_theta, 500000);
  EXPECT_EQ(read(head + R"("rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000}})").rope_theta, 500000);
  const std::string both = refusal(head + R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 500000}})");
  EXPECT_THAT(both, HasSubstr("rope_parameters: rope_theta is 500000 but"));
  EXPECT_THAT(both, HasSubstr("rope_theta is 10000"));
}

TEST(ReadArchitecture, FindsTheScalingInBothPlaces) {
  const std::string numbers =
      R"("factor": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)";
  const std::string head = R"({"model_type": "llama", "max_position_embeddings": 131072, "rope_theta": 500000, )";
  const std::string old_block = R"("rope_scaling": {"type": "llama3", )" + numbers + "}";
  const std::string new_block = R"("rope_parameters": {"rope_type": "llama3", )" + numbers + "}";
  for (const auto& blocks : {old_block, new_block, old_block + ", " + new_block}) {
    const Architecture a = read(head + blocks + "}");
    ASSERT_TRUE(a.rope_scaling) << blocks;
    EXPECT_EQ(a.rope_scaling->factor, 32);
    EXPECT_EQ(a.rope_scaling->original_max_position_embeddings, 8192);
    EXPECT_EQ(a.rope_theta, 500000);
  }
  EXPECT_THAT(refusal(head + old_block + R"(, "rope_parameters": {"rope_type": "default"}})"),
              HasSubstr("different scalings"));
}

TEST(ReadArchitecture, ScalingWithoutOldContextUsesTheModelsOwn) {
  const Architecture a = read(config_with("rope_scaling", R"({"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4})"));
  EXPECT_EQ(a.rope_scaling->original_max_position_embeddings, 64);
}

TEST(ReadArchitecture, RefusesScalingsItDoesNotHave) {
  EXPECT_THAT(refusal(config_with("rope_scaling", R"({"type": "linear", "factor": 2.0})")),
              HasSubstr("rope_scaling: rope_type \"linear\" is not supported"));
  EXPECT_THAT(refusal(config_with("rope_scaling", R"({"rope_type": "llama3", "low_freq_factor": 1,
      "high_freq_factor": 4})")),
              HasSubstr("factor is missing"));
  EXPECT_THAT(refusal(config_with("rope_scaling", R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
      "high_freq_factor": 4})")),
              HasSubstr("must be above low_freq_factor"));
  EXPECT_THAT(refusal(config_with("rope_scaling", R"({"rope_type": "llama3", "type": "default"})")),
              HasSubstr("remove the wrong one"));
  EXPECT_THAT(refusal(config_with("rope_scaling", "7")), HasSubstr("rope_scaling is 7; expected an object"));
  EXPECT_THAT(refusal(config_with("partial_rotary_factor", "0.5")), HasSubstr("partial_rotary_factor is 0.5"));
}

// C21: the precision key has two spellings; neither decides anything here, a contradiction is told.
TEST(ReadArchitecture, AcceptsBothSpellingsOfTheDtype) {
  const std::string plain = config_json(read(config_with("dtype", "")));
  EXPECT_EQ(config_json(read(config_with("torch_dtype", R"("bfloat16")"))), plain);
  EXPECT_EQ(config_json(read(config_with("dtype", R"("torch.bfloat16")"))), plain);
  const std::string head = R"({"model_type": "llama", )";
  EXPECT_NO_THROW(read(head + R"("torch_dtype": "torch.float16", "dtype": "float16"})"));
  EXPECT_THAT(refusal(head + R"("torch_dtype": "bfloat16", "dtype": "float32"})"),
              HasSubstr("torch_dtype is bfloat16"));
}

TEST(ReadArchitecture, NamesTheKeyOfEveryBadValue) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"model_type", "\"gpt2\""},
      {"model_type", ""},
      {"model_type", "3"},
      {"architectures", "[\"LlamaForSequenceClassification\"]"},
      {"architectures", "\"LlamaForCausalLM\""},
      {"vocab_size", "0"},
      {"vocab_size", "-5"},
      {"vocab_size", "97.5"},
      {"vocab_size", "\"97\""},
      {"vocab_size", "1e30"},
      {"hidden_size", "99999999999999999999"},
      {"intermediate_size", "true"},
      {"num_hidden_layers", "1000000000"},
      {"num_attention_heads", "[4]"},
      {"num_key_value_heads", "3"},
      {"head_dim", "7"},
      {"max_position_embeddings", "0"},
      {"hidden_act", "\"gelu\""},
      {"rms_norm_eps", "\"1e-5\""},
      {"rms_norm_eps", "-1"},
      {"initializer_range", "2"},
      {"rope_theta", "0"},
      {"rope_theta", "{}"},
      {"attention_bias", "1"},
      {"mlp_bias", "\"no\""},
      {"tie_word_embeddings", "0"},
      {"attention_dropout", "0.1"},
      {"quantization_config", "{\"quant_method\": \"gptq\"}"},
  };
  for (const auto& [key, value] : bad) EXPECT_THAT(refusal(config_with(key, value)), HasSubstr(key)) << value;
}

TEST(ReadArchitecture, TakesAHeadSizeOfItsOwn) {
  const Architecture a = read(config_with("head_dim", "16"));
  EXPECT_EQ(a.head_dim, 16);
  EXPECT_EQ(a.dim, 24);
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 25, "num_attention_heads": 4})"),
              HasSubstr("hidden_size 25 is not a multiple of num_attention_heads 4"));
}

TEST(ReadArchitecture, MistralOnlyWithoutAWindow) {
  const std::string head = R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"])";
  const Architecture a = read(head + R"(, "sliding_window": null})");
  EXPECT_EQ(a.n_kv_heads, 8);
  EXPECT_EQ(a.ffn_dim, 14336);
  EXPECT_THAT(refusal(head + "}"), HasSubstr("sliding_window is 4096, less than max_position_embeddings 131072"));
  EXPECT_NO_THROW(read(head + R"(, "max_position_embeddings": 2048})"));
}

TEST(ReadArchitecture, RefusesWhatIsNoConfig) {
  EXPECT_THAT(error_of(Code::input, [] { read_architecture("/no/such/folder"); }), HasSubstr("/config.json: cannot"));
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal("<!DOCTYPE html>"), HasSubstr("web page"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "model_type": "llama"})"), HasSubstr("appears twice"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "vocab_size": NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"model_type\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"a\": " + std::string(100000, '[')), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace shale::test

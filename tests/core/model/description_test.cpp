#include "core/model/description.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/architecture.h"
#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> frozen_names(const ModelInfo& info) {
  std::vector<std::string> names;
  for (const auto& unit : info.units) {
    for (const auto& parameter : unit.parameters) {
      if (parameter.frozen) names.push_back(parameter.name);
    }
  }
  return names;
}

TEST(Describe, ParameterCountsAreThePublishedOnes) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"tiny", 3'033'344},          {"small", 124'668'672},         {"smollm2-135m", 134'515'008},
      {"llama2-7b", 6'738'415'616}, {"llama2-13b", 13'015'864'320}, {"llama2-70b", 68'976'648'192},
      {"llama3-8b", 8'030'261'248}, {"llama3-70b", 70'553'706'496}, {"llama3.2-1b", 1'235'814'400},
  };
  for (const auto& [name, count] : published) EXPECT_EQ(describe(flavor(name)).numel(), count) << name;
}

TEST(Describe, TheFixtureHasItsStatedSize) {
  Architecture a = small_llama();
  EXPECT_EQ(describe(a).numel(), 16'296);
  a.tied = true;
  EXPECT_EQ(describe(a).numel(), 13'968);
}

TEST(Describe, UnitsStandInForwardOrder) {
  const ModelInfo info = describe(small_llama());
  ASSERT_EQ(info.units.size(), 4u);
  EXPECT_EQ(info.units[0].name, "embedding");
  EXPECT_EQ(info.units[1].name, "layers.0");
  EXPECT_EQ(info.units[2].name, "layers.1");
  EXPECT_EQ(info.units[3].name, "head");
  EXPECT_THAT(info.run_order(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(info.units[0].kind, UnitKind::embedding);
  EXPECT_EQ(info.units[2].kind, UnitKind::layer);
  EXPECT_EQ(info.units[3].kind, UnitKind::head);
}

TEST(Describe, GivenOrderIsKept) {
  ModelInfo info = describe(small_llama());
  info.order = {0, 1, 1, 3};
  EXPECT_THAT(info.run_order(), ElementsAre(0, 1, 1, 3));
}

TEST(Describe, NamesAreUniqueAndMatricesOfOneInputStandTogether) {
  Architecture a = small_llama();
  a.attention_bias = a.mlp_bias = true;
  const ModelInfo info = describe(a);
  std::set<std::string> names;
  std::size_t count = 0;
  for (const auto& unit : info.units) {
    for (const auto& parameter : unit.parameters) names.insert(parameter.name), ++count;
  }
  EXPECT_EQ(names.size(), count);
  std::vector<std::string> layer;
  for (const auto& parameter : info.units[1].parameters) layer.push_back(parameter.name.substr(15));
  EXPECT_THAT(layer,
              ElementsAre("input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                          "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "self_attn.q_proj.bias",
                          "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.o_proj.bias",
                          "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"));
}

TEST(Describe, RolesTellNormsBiasesAndMatricesApart) {
  Architecture a = small_llama();
  a.attention_bias = a.mlp_bias = true;
  for (const auto& unit : describe(a).units) {
    for (const auto& parameter : unit.parameters) {
      const bool vector = parameter.shape.size() == 1;
      EXPECT_EQ((parameter.role & (kNorm | kBias)) != 0, vector) << parameter.name;
      EXPECT_EQ((parameter.role & (kEmbedding | kLinear)) != 0, !vector) << parameter.name;
      EXPECT_EQ((parameter.role & kHead) != 0, parameter.name == "lm_head.weight");
    }
  }
}

TEST(Describe, ATiedHeadBorrowsTheEmbedding) {
  Architecture a = small_llama();
  EXPECT_TRUE(describe(a).units.back().borrows.empty());
  a.tied = true;
  EXPECT_THAT(describe(a).units.back().borrows, ElementsAre("model.embed_tokens.weight"));
  EXPECT_EQ(describe(a).units.back().parameters.size(), 1u);
}

TEST(Frozen, PatternsMatchNames) {
  const std::vector<std::string> embedding = {"model.embed_tokens*"}, norms = {"*norm.weight"},
                                 layer = {"model.layers.1.*", "lm_head.weight"}, all = {"*"}, inner = {"*.0.*q_proj*t"};
  EXPECT_THAT(frozen_names(describe(small_llama(), embedding)), ElementsAre("model.embed_tokens.weight"));
  EXPECT_EQ(frozen_names(describe(small_llama(), norms)).size(), 5u);
  EXPECT_EQ(frozen_names(describe(small_llama(), layer)).size(), 10u);
  EXPECT_EQ(frozen_names(describe(small_llama(), all)).size(), 21u);
  EXPECT_THAT(frozen_names(describe(small_llama(), inner)), ElementsAre("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(frozen_names(describe(small_llama())).empty());
}

TEST(Frozen, APatternWithoutMatchIsAnErrorWithTheNearestName) {
  auto refusal = [](std::string pattern) {
    return error_of(Code::config, [&] { describe(small_llama(), std::span(&pattern, 1)); });
  };
  EXPECT_THAT(refusal("model.embed_token.*"), HasSubstr("did you mean \"model.embed_tokens\"?"));
  EXPECT_THAT(refusal("model.layers.7.*"), HasSubstr("model.layers."));
  EXPECT_THAT(refusal("lm_haed.weight"), HasSubstr("did you mean \"lm_head.weight\"?"));
  EXPECT_THAT(refusal("completely different words"), HasSubstr("parameters are named like"));
  EXPECT_THAT(refusal(""), HasSubstr("matches no parameter"));
}

}  // namespace
}  // namespace shale::test

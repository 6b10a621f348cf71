#include "core/train/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/base/error_text.h"
#include "tests/core/model/folders.h"
#include "tests/core/model/whole_model.h"

namespace shale {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;

// A Hugging Face folder of the fixture model, its head enlarged so that tokens differ in likelihood.
class Generate : public testing::Test {
 protected:
  Generate() {
    tensors = test::tensors_of(test::small_llama());
    for (auto& v : tensors.at("lm_head.weight").values) v *= 40;
    save();
    options.snapshot = folder.path(), options.prompt = {3, 1, 4}, options.max_new_tokens = 12;
  }

  void save(const std::string& max_positions = "64") {
    folder.write("config.json", test::config_with("max_position_embeddings", max_positions));
    folder.write("model.safetensors", test::safetensors(tensors));
  }

  Tokens generated() {
    Tokens out;
    generate(options, nullptr, [&](std::int64_t token) { out.push_back(token); });
    return out;
  }

  // Logits of what follows `tokens`, by the whole model.
  std::vector<double> logits_after(const Tokens& tokens) {
    const at::NoGradGuard off;
    test::WholeModel model(test::small_llama(), 64, at::kFloat,
                           [&](const ParameterInfo& p) { return at::tensor(tensors.at(p.name).values); });
    const auto row = model.forward(at::tensor(tokens).unsqueeze(0)).select(0, 0).select(0, -1).to(at::kDouble);
    return {row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel()};
  }

  std::int64_t likeliest_after(const Tokens& tokens) {
    const auto x = logits_after(tokens);
    return std::max_element(x.begin(), x.end()) - x.begin();
  }

  test::TempFolder folder;
  test::Tensors tensors;
  GenerateOptions options;
};

TEST_F(Generate, WithoutTemperatureTakesTheLikeliest) {
  options.temperature = 0;
  const auto out = generated();
  ASSERT_EQ(out.size(), 12u);
  auto tokens = options.prompt;
  for (auto token : out) {
    EXPECT_EQ(token, likeliest_after(tokens));
    tokens.push_back(token);
  }
  options.temperature = 5, options.top_k = 1;
  EXPECT_EQ(generated(), out);
}

TEST_F(Generate, TheSameSeedGivesTheSameText) {
  options.temperature = 1.5, options.top_k = 0;
  const auto first = generated();
  EXPECT_EQ(generated(), first);
  options.seed = 1;
  EXPECT_NE(generated(), first);
}

// A thousand draws of one token: each at most five standard deviations from its probability.
TEST_F(Generate, DrawsFromTheLikeliestAsOftenAsTheTemperatureSays) {
  options.temperature = 2, options.top_k = 5, options.max_new_tokens = 1;
  const auto x = logits_after(options.prompt);
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] > x[b]; });
  double total = 0;
  for (int i = 0; i < 5; ++i) total += std::exp(x[order[i]] / 2);
  std::map<std::int64_t, int> drawn;
  constexpr int kDraws = 1000;
  for (int i = 0; i < kDraws; ++i) options.seed = static_cast<std::uint64_t>(i), ++drawn[generated().front()];
  int found = 0;
  for (int i = 0; i < 5; ++i) {
    const double p = std::exp(x[order[i]] / 2) / total;
    const int n = drawn[static_cast<std::int64_t>(order[i])];
    EXPECT_NEAR(n, kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << "rank " << i;
    found += n;
  }
  EXPECT_EQ(found, kDraws) << "others were drawn";
}

TEST_F(Generate, LongTextsSeeTheLastPositionsOnly) {
  save("6");
  options.temperature = 0;
  const auto out = generated();
  auto tokens = options.prompt;
  for (auto token : out) {
    const auto from = tokens.size() > 6 ? tokens.end() - 6 : tokens.begin();
    EXPECT_EQ(token, likeliest_after({from, tokens.end()}));
    tokens.push_back(token);
  }
}

TEST_F(Generate, RefusesTokensThatDoNotExist) {
  for (std::int64_t token : {-1, 97, 1 << 20}) {
    options.prompt = {3, token};
    EXPECT_THAT(error_text(Code::config, [&] { generated(); }),
                HasSubstr(str("the prompt holds token ", token, ", but the vocabulary of ")));
  }
}

TEST_F(Generate, RefusesFoldersThatAreNoModel) {
  options.snapshot = folder.path() + "/gone";
  EXPECT_THAT(error_text(Code::input, [&] { generated(); }), HasSubstr("gone"));
  options.snapshot = folder.path();
  tensors.erase("model.norm.weight");
  save();
  EXPECT_THAT(error_text(Code::input, [&] { generated(); }), HasSubstr("model.norm.weight"));
}

TEST_F(Generate, RefusesAModelWhoseNumbersAreNone) {
  tensors.at("model.norm.weight").values[3] = std::numeric_limits<float>::quiet_NaN();
  save();
  EXPECT_THAT(error_text(Code::numeric, [&] { generated(); }), HasSubstr("its weights are not finite"));
}

}  // namespace
}  // namespace shale

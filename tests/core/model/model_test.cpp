#include "core/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops/ops.h"
#include "tests/core/model/folders.h"
#include "tests/core/model/whole_model.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

// Values wide enough that every part of the model matters, biases and norms included.
at::Tensor wide_values(const ParameterInfo& parameter) {
  Architecture a = small_llama();
  a.init_std = 0.3;
  ParameterInfo plain = parameter;
  plain.role = kLinear;
  const at::Tensor values = initial_values(a, plain, 5, 0, numel(parameter.shape));
  return parameter.role & kNorm ? 1 + values : values;
}

at::Tensor tokens(std::int64_t batch, std::int64_t length) {
  const at::Tensor i = at::arange(batch * length, at::kLong).reshape({batch, length});
  return (i * i + 3 * i).remainder(97);
}

TEST(MakeModel, RefusesASequenceLengthBelowOne) {
  EXPECT_THAT(error_of(Code::config, [] { make_model(small_llama(), {}, 0); }), HasSubstr("sequence length is 0"));
}

TEST(MakeModel, HasOneForwardPerUnitAndKnowsWhatIsFrozen) {
  const std::vector<std::string> frozen = {"model.norm.weight"};
  const Model model = make_model(small_llama(), frozen, 16);
  EXPECT_EQ(model.forward.size(), model.info.units.size());
  EXPECT_TRUE(model.info.units.back().parameters[0].frozen);
}

TEST(Forward, LossIsTheSumOverTargetsOfTheLogits) {
  WholeModel whole(small_llama(), 16, at::kDouble, wide_values);
  const at::Tensor ids = tokens(2, 16), logits = whole.forward(ids);
  ASSERT_EQ(logits.sizes(), (at::IntArrayRef{2, 16, 97}));
  at::Tensor targets = (ids + 1).remainder(97);
  const at::Tensor chosen = logits.log_softmax(2).gather(2, targets.unsqueeze(2)).squeeze(2);
  EXPECT_NEAR(whole.forward(ids, targets).item<double>(), -chosen.sum().item<double>(), 1e-10);
  targets.narrow(1, 0, 15).fill_(kIgnored);
  EXPECT_NEAR(whole.forward(ids, targets).item<double>(), -chosen.select(1, 15).sum().item<double>(), 1e-10);
}

TEST(Forward, NoPositionSeesALaterOne) {
  WholeModel whole(small_llama(), 16, at::kDouble, wide_values);
  const at::Tensor ids = tokens(1, 16), before = whole.forward(ids);
  ids[0][9] = (ids[0][9] + 1).remainder(97);
  const at::Tensor change = (whole.forward(ids) - before).abs().amax({0, 2});
  EXPECT_EQ(change.narrow(0, 0, 9).max().item<double>(), 0);
  EXPECT_GT(change.narrow(0, 9, 7).min().item<double>(), 1e-6);
}

TEST(Forward, AShorterSequenceIsTheBeginOfALongerOne) {
  WholeModel whole(small_llama(), 16, at::kDouble, wide_values);
  const at::Tensor ids = tokens(2, 16);
  const at::Tensor all = whole.forward(ids), part = whole.forward(ids.narrow(1, 0, 5).contiguous());
  EXPECT_LT((all.narrow(1, 0, 5) - part).abs().max().item<double>(), 1e-12);
}

// The derivative along one random direction of every parameter, against central differences.
void check_gradients(const Architecture& a) {
  WholeModel whole(a, 7, at::kDouble, wide_values, true);
  const at::Tensor ids = tokens(2, 7), targets = (ids * 5 + 2).remainder(97);
  whole.backward(ids, targets);
  c10::NoGradGuard no_graph;
  for (auto& [name, weight] : whole.weights()) {
    const ParameterInfo direction_of{name + "/direction", weight.value.sizes().vec(), kLinear};
    const at::Tensor direction = wide_values(direction_of).reshape(weight.value.sizes());
    const at::Tensor value = weight.value.detach(), kept = value.clone();
    constexpr double kStep = 1e-5;
    value.copy_(kept + kStep * direction);
    const double above = whole.forward(ids, targets).item<double>();
    value.copy_(kept - kStep * direction);
    const double below = whole.forward(ids, targets).item<double>();
    value.copy_(kept);
    const double expected = (above - below) / (2 * kStep);
    const double found = (weight.grad * direction).sum().item<double>();
    EXPECT_NEAR(found, expected, 1e-6 * (1 + std::abs(expected))) << name;
    EXPECT_GT(std::abs(expected), 1e-6) << name << " does not matter: the test says nothing";
  }
}

TEST(Backward, GradientsOfAllParameters) {
  Architecture a = small_llama();
  a.attention_bias = a.mlp_bias = true;
  check_gradients(a);
}

TEST(Backward, GradientsOfATiedModelWithWideHeads) {
  Architecture a = small_llama();
  a.tied = true, a.head_dim = 16;
  check_gradients(a);
}

TEST(Forward, ConfusedWeightsAreABugOfOurs) {
  const Model model = make_model(small_llama(), {}, 16);
  const ModelInput input{tokens(1, 4), {}};
  std::vector<Weight> weights(2);
  auto message = [&](std::size_t unit, const at::Tensor& x) {
    return error_of(Code::internal, [&] { model.forward[unit](input, weights, x); });
  };
  const at::Tensor x = at::ones({1, 4, 24});
  EXPECT_THAT(message(1, x), HasSubstr("layers.0: 2 weights, expected 9"));
  EXPECT_THAT(message(3, x), HasSubstr("head: weight 0"));
  weights[0].value = at::ones({24}), weights[1].value = at::ones({96, 24});
  EXPECT_THAT(message(3, x), HasSubstr("head: weight 1 has shape [96, 24], expected [97, 24]"));
  weights[1].value = at::ones({97, 24});
  EXPECT_THAT(message(3, at::ones({1, 4, 25})), HasSubstr("activations must be [B, T, 24]"));
  EXPECT_THAT(message(3, {}), HasSubstr("activations must be"));
}

}  // namespace
}  // namespace shale::test

#include "core/precision/policy.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/architecture.h"
#include "tests/core/base/error_text.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

ModelInfo model() {
  Architecture a;
  a.n_layers = 1;
  return describe(a);
}

PrecisionTable table_of(const ParameterPrecision& row) {
  PrecisionTable t;
  for (auto& unit : model().units) t.units.emplace_back(unit.parameters.size(), row);
  return t;
}

std::string refusal(const std::function<void(ParameterPrecision&)>& change) {
  auto table = table_of({});
  change(table.units[1][0]);  // the first parameter of the layer
  const auto text = error_text(Code::config, [&] { validate(table, model()); });
  EXPECT_THAT(text, HasSubstr(model().units[1].parameters[0].name));
  return text;
}

TEST(ValidatePrecision, TakesWhatTheEngineCanDo) {
  const auto f = at::kFloat, d = at::kDouble, b = at::kBFloat16, h = at::kHalf;
  for (const auto& row : {ParameterPrecision{f, f, f, f, f, f, f}, ParameterPrecision{d, d, d, d, d, d, d},
                          ParameterPrecision{f, b, b, b, f, f, f},   // compute in bf16
                          ParameterPrecision{f, b, b, f, f, f, f},   // gradients kept wide
                          ParameterPrecision{f, f, b, f, f, f, f},   // narrow on the wire only
                          ParameterPrecision{f, h, h, h, h, f, f},   // narrow reductions
                          ParameterPrecision{d, f, b, f, f, d, d}})  // float64 masters
    EXPECT_NO_THROW(validate(table_of(row), model()));
}

TEST(ValidatePrecision, RefusesEveryRoleThatIsNoFloat) {
  using Role = at::ScalarType ParameterPrecision::*;
  for (Role role : {&ParameterPrecision::master, &ParameterPrecision::compute, &ParameterPrecision::gather,
                    &ParameterPrecision::grad, &ParameterPrecision::reduce, &ParameterPrecision::accumulate,
                    &ParameterPrecision::moments})
    for (auto dtype : {at::kInt, at::kFloat8_e4m3fn, at::kByte})
      EXPECT_THAT(refusal([&](auto& p) { p.*role = dtype; }),
                  HasSubstr(str("dtype ", c10::toString(dtype),
                                " is not supported here; expected float64, float32, bfloat16 or float16")));
}

TEST(ValidatePrecision, RefusesCombinations) {
  EXPECT_THAT(refusal([](auto& p) { p.accumulate = at::kBFloat16; }),
              HasSubstr("accumulate dtype BFloat16 is not supported here; expected float32 or float64"));
  EXPECT_THAT(refusal([](auto& p) { p.master = p.moments = at::kDouble; }),
              HasSubstr("master dtype Double is not supported here; expected the accumulate dtype"));
  EXPECT_THAT(refusal([](auto& p) { p.moments = at::kBFloat16; }),
              HasSubstr("moments dtype BFloat16 is not supported here; expected the master dtype"));
  EXPECT_THAT(refusal([](auto& p) { p.gather = at::kDouble; }),
              HasSubstr("gather dtype Double is not supported here; expected the compute dtype or a narrower one"));
  EXPECT_THAT(refusal([](auto& p) { p.compute = p.grad = at::kBFloat16, p.gather = at::kHalf; }),
              HasSubstr("gather dtype Half"));  // as wide, but another format
  EXPECT_THAT(refusal([](auto& p) { p.grad = at::kHalf; }),
              HasSubstr("grad dtype Half is not supported here; expected the compute or the accumulate dtype"));
}

TEST(ValidatePrecision, ATableOfAnotherModelIsABug) {
  auto table = table_of({});
  table.units.pop_back();
  error_text(Code::internal, [&] { validate(table, model()); });
  table = table_of({});
  table.units[1].pop_back();
  EXPECT_THAT(error_text(Code::internal, [&] { validate(table, model()); }), HasSubstr("layers.0"));
}

// The sum over ranks is kept in the accumulate dtype: a wider wire would lose digits there.
TEST(ValidatePrecision, RefusesAWireWiderThanTheSum) {
  EXPECT_THAT(refusal([](ParameterPrecision& p) { p.reduce = at::kDouble; }), HasSubstr("reduce dtype Double"));
}

TEST(PrecisionText, TellsEveryDifference) {
  auto table = table_of({});
  const auto text = table.text();
  EXPECT_EQ(table_of({}).text(), text);
  table.units[1][0].gather = at::kBFloat16;
  EXPECT_NE(table.text(), text);
  table = table_of({});
  table.loss_scale = LossScale{};
  EXPECT_NE(table.text(), text);
}

}  // namespace
}  // namespace shale

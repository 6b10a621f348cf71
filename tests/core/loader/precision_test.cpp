#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::load;
using test::option;
using test::small_model;
using test::topology_of;

PrecisionTable plan_in(const std::string& mood) {
  Config c = test::good_config();
  c.precision.plugin = test::bad("moody");
  c.precision.options = {option("mood", mood)};
  return load(c)->precision().plan(small_model(), topology_of(2, 2));
}

TEST(Precision, Dtypes) {
  const PrecisionTable table = plan_in("good");
  ASSERT_EQ(table.units.size(), 4u);
  EXPECT_EQ(table.units[1].size(), 2u);
  EXPECT_EQ(table.units[3][0], ParameterPrecision{});
  EXPECT_FALSE(table.loss_scale);
}

TEST(Precision, LossScale) {
  const PrecisionTable table = plan_in("scaled");
  ASSERT_TRUE(table.loss_scale);
  EXPECT_EQ(table.loss_scale->initial, 65536);
  EXPECT_EQ(table.loss_scale->growth_steps, 100);
  EXPECT_EQ(table.loss_scale->hysteresis, 2);
  EXPECT_EQ(table.loss_scale->max_skips, 20);
}

struct Case {
  const char* mood;
  Code code;
  std::vector<std::string> parts;
};
class PrecisionMood : public testing::TestWithParam<Case> {};

TEST_P(PrecisionMood, IsAnError) {
  auto parts = GetParam().parts;
  parts.push_back("[precision] moody");
  expect_error(GetParam().code, parts, [] { plan_in(GetParam().mood); });
}

INSTANTIATE_TEST_SUITE_P(
    All, PrecisionMood,
    testing::Values(Case{"no param", Code::config, {"no dtypes were given for parameter 0 (embed.weight)"}},
                    Case{"one param", Code::config, {"no dtypes were given for parameter 1 (layers.0.weight)"}},
                    Case{"wrong param", Code::internal, {"param: is 1000, the model has 6 parameters"}},
                    Case{"short param", Code::internal, {"precision: has 36 bytes, ABI 0.1 has 40"}},
                    Case{"no grad", Code::internal, {"grad: is 0, no dtype of this shale"}},
                    Case{"odd dtype", Code::internal, {"compute: is 4249, no dtype of this shale"}},
                    Case{"refused dtype", Code::config, {"run.toml:5:10", "its plan cannot be used", "embed.weight"}},
                    Case{"rounding", Code::config, {"master_rounding: this shale does not round"}},
                    Case{"bad rounding", Code::internal, {"master_rounding: is 5"}},
                    Case{"8 bit", Code::config, {"moments_block: this shale has no 8-bit moments"}},
                    Case{"linear", Code::config, {"linear: this shale has no quantised matrix products"}},
                    Case{"state", Code::config, {"state: this shale calls no hooks"}},
                    Case{"short scale", Code::internal, {"loss_scale: has 16 bytes"}},
                    Case{"odd scale", Code::internal, {"initial: must be a power of two (got 1000)"}},
                    Case{"large scale", Code::internal, {"initial: must be 1..65536 (got 131072)"}},
                    Case{"shrinking", Code::internal, {"growth: must be at least 1"}},
                    Case{"growing", Code::internal, {"backoff: must be at most 1"}},
                    Case{"many skips", Code::internal, {"counts must be at most"}}),
    [](const auto& info) {
      std::string name = info.param.mood;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace shale

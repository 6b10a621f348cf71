// uniform: one number format for everything.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class Uniform : public Precision {
 public:
  static constexpr Info info{.id = "uniform", .version = "0.1.0", .summary = "one number format for everything"};
  static constexpr shale_option options[] = {
      choice("dtype", "float32", "float32|float64", "format of weights, gradients, traffic and optimizer state"),
  };
  using Precision::Precision;

  void plan(const shale_model&, const shale_topology&, PrecisionPlan to) override {
    SHALE_VAR(shale_param_precision, p);
    p.master = p.compute = p.gather = p.grad = p.reduce = p.accumulate = p.moments =
        config.text("dtype") == "float64" ? SHALE_F64 : SHALE_F32;
    to.params(p);
  }
};
SHALE_PLUGIN(Uniform)

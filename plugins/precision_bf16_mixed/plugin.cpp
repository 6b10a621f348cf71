// bf16_mixed: fp32 masters, moments and reductions; bf16 either throughout the model or on the wire only.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class Bf16Mixed : public Precision {
 public:
  static constexpr Info info{.id = "bf16_mixed",
                             .version = "0.1.0",
                             .summary = "fp32 masters and reductions, bf16 weights",
                             .caps = SHALE_CAP_CPU | SHALE_CAP_CUDA | SHALE_CAP_CHANGES_MATH};
  static constexpr shale_option options[] = {
      choice("mode", "compute", "compute|storage",
             "compute: the model runs in bf16; storage: weights travel as bf16 and are computed with in fp32"),
  };
  using Precision::Precision;

  void plan(const shale_model&, const shale_topology&, PrecisionPlan to) override {
    SHALE_VAR(shale_param_precision, p);
    p.master = p.reduce = p.accumulate = p.moments = SHALE_F32;
    p.gather = SHALE_BF16;
    p.compute = p.grad = config.text("mode") == "compute" ? SHALE_BF16 : SHALE_F32;
    to.params(p);
  }
};
SHALE_PLUGIN(Bf16Mixed)

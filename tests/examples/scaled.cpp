// A precision for tests: float32 with a loss scale that starts where gradients overflow and is halved until none does.
#include <cmath>

#include "shale/plugin.hpp"

using namespace shale::sdk;

class Scaled : public Precision {
 public:
  static constexpr Info info{.id = "scaled", .version = "1.0.0", .summary = "float32 with a loss scale"};
  static constexpr shale_option options[] = {
      integer("exponent", "16", {"0", "200"}, "the loss scale starts at 2 to this"),
      integer("growth_steps", "0", {"0", "100000", "steps"}, "clean steps before it is doubled; 0 = never"),
  };
  using Precision::Precision;

  void plan(const shale_model&, const shale_topology&, PrecisionPlan to) override {
    SHALE_VAR(shale_param_precision, p);
    p.master = p.compute = p.gather = p.grad = p.reduce = p.accumulate = p.moments = SHALE_F32;
    to.params(p);
    SHALE_VAR(shale_loss_scale, s);
    s.initial = s.max = std::ldexp(1.0, static_cast<int>(config.integer("exponent")));
    s.min = 1;
    s.growth = 2, s.backoff = 0.5;
    s.growth_steps = config.count("growth_steps") != 0 ? config.count("growth_steps") : 1000000;
    s.hysteresis = 1, s.max_skips = 1000;
    to.loss_scale(s);
  }
};
SHALE_PLUGIN(Scaled)

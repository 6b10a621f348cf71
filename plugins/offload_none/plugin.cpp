// none: everything stays on the device that computes. What is not placed is there already.
#include "shale/plugin.hpp"

using namespace shale::sdk;

class None : public Offload {
 public:
  static constexpr Info info{.id = "none", .version = "0.1.0", .summary = "everything stays on the device"};
  using Offload::Offload;

  void plan(const shale_model&, const shale_topology&, const shale_offload_ask&, OffloadPlan) override {}
};
SHALE_PLUGIN(None)

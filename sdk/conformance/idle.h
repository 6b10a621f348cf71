// The services of a host that runs no step: they are there to be asked for, and refuse work.
#pragma once

#include "shale/services.h"

namespace shale::conform {

class FakeHost;

struct IdleServices {
  explicit IdleServices(FakeHost*);
  shale_log log;
  shale_lane_service lanes;
  shale_collectives collectives;
  shale_math math;
};

}  // namespace shale::conform

#include "idle.h"

#include "host.h"

namespace shale::conform {
namespace {

template <class... Arguments>
shale_status* refuse(void* ctx, Arguments...) {
  return static_cast<FakeHost*>(ctx)->make(SHALE_BAD_ARGUMENT, "lane",
                                           "this service is for hooks, and none is running");
}

void write(void*, std::uint32_t, shale_str) {}
void metric(void*, const char*, const char*, double) {}
void* stream(void*, shale_lane*) { return nullptr; }
std::uint32_t none(void*, std::uint32_t) { return 0; }

}  // namespace

IdleServices::IdleServices(FakeHost* h)
    : log{sizeof log, 0, h, write, metric},
      lanes{sizeof lanes, 0, h, stream, refuse, refuse, refuse},
      collectives{sizeof collectives, 0, h, none, none, refuse, refuse, refuse, refuse, refuse},
      math{sizeof math, 0, h, refuse, refuse, refuse, refuse} {}

}  // namespace shale::conform

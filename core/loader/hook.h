// Calls of a sharding plugin's hooks: the lane is lent for the time of the call, and messages say where it was.
#pragma once

#include <optional>

#include "core/loader/instance.h"

namespace shale {

struct HookCall {
  const char* name = "";  // "gather"
  std::int64_t step = 0;
  const FlatLayout* flat = nullptr;
  const ShardRange* range = nullptr;
  Lane* lane = nullptr;
  at::Device device = at::kCPU;
  at::Tensor changing = {};  // an input that stays still only until the first collective; perhaps none
};

// What a hook's answer means when a service call in it had gone wrong before: null = none had. The failure of the
// service decides the class of the error and whether a peer's end is behind it, whatever the plugin made of it.
std::optional<Failure> judge(const PluginInstance&, const char* doing, std::optional<Failure> hook, Status service);

// body(flat, lane) calls the hook. Any thread, several hooks at once.
template <class F>
void run_hook(PluginInstance& plugin, const HookCall& call, F&& body) {
  HookServices& hooks = plugin.hooks();
  const std::string doing = str(call.name, " of ", hooks.flats().name(*call.flat), " at step ", call.step);
  const shale_flat* flat = hooks.flats().view(*call.flat, *call.range);
  HookServices::Lent lent(hooks, *call.lane, call.device);
  lent.handle()->changing = call.changing;
  auto failure = plugin.attempt(doing.c_str(), Code::internal, [&] { return body(flat, lent.handle()); });
  failure = judge(plugin, doing.c_str(), std::move(failure), lent.take_failure());
  if (failure) failure->raise();
}

}  // namespace shale

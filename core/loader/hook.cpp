#include "core/loader/hook.h"

namespace shale {

std::optional<Failure> judge(const PluginInstance& plugin, const char* doing, std::optional<Failure> hook,
                             Status service) {
  if (!service) return hook;
  if (!hook) return plugin.explain(std::move(service), doing);  // the hook went on as if it were fine
  if (!service->cause) return hook;
  const std::string why = one_line(service->text);
  hook->code = service->cause->code(), hook->secondary = hook->secondary || service->cause->secondary();
  if (hook->text.find(why) == std::string::npos) hook->text += str(" (after: ", why, ")");
  return hook;
}

}  // namespace shale

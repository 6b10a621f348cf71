// What the builders of the three plans have in common: an argument that was refused stays refused, also when the plugin
// ignores the status.
#pragma once

#include <string>
#include <vector>

#include "core/loader/instance.h"
#include "core/loader/model_view.h"

namespace shale {

class PlanBuilder {
 public:
  // Runs the body of a builder function; keeps the first status it ends in.
  template <class F>
  shale_status* answer(F&& body) noexcept {
    shale_status* status = guarded(body);
    if (status != nullptr && !first_) first_.reset(make_status(status->code, status->where, status->text));
    return status;
  }
  // After the plugin's function returned without a status of its own.
  void finish(const PluginInstance& plugin, const char* doing) {
    if (first_) plugin.explain(std::move(first_), doing).raise();
  }

 private:
  Status first_;
};

inline shale_status* bad_argument(const char* where, const std::string& text) {
  return make_status(SHALE_BAD_ARGUMENT, where, text);
}
inline shale_status* unsupported(const char* where, const std::string& text) {
  return make_status(SHALE_UNSUPPORTED, where, text);
}

// Runs a room's own check of a plan and says whose plan it was.
template <class F>
void check_plan(const PluginInstance& plugin, F&& validate) {
  try {
    validate();
  } catch (const Error& e) {
    plugin.refuse(e.code(), str("its plan cannot be used: ", e.what()));
  }
}

}  // namespace shale

#include "core/loader/instance.h"

namespace shale {

PluginInstance::PluginInstance(InstanceSpec spec)
    : spec_(std::move(spec)),
      descriptor_(spec_.library->descriptor(spec_.choice.kind)),
      services_({spec_.choice.kind, descriptor_.id, spec_.log, spec_.run}),
      host_(host_head()) {
  host_.ctx = &services_;
  host_.get_service = [](void* ctx, const char* id) { return static_cast<Services*>(ctx)->find(id); };
}

PluginInstance::~PluginInstance() {
  if (!created_) return;
  try {
    spec_.library->table.destroy(self_);
  } catch (...) {
    if (spec_.log) spec_.log->warning(label(true) + ": destroy threw a C++ exception: a bug of the plugin");
  }
}

void PluginInstance::create(ConfigErrors& errors) {
  const auto failure = attempt("create", Code::config, [&] {
    shale_status* status = spec_.library->table.create(&host_, descriptor_.raw, spec_.options->config(), &self_);
    created_ = status == nullptr;
    return status;
  });
  if (!failure) return;
  if (failure->code != Code::config) failure->raise();
  errors.add(failure->origin, failure->text);
}

LoadedPlugin PluginInstance::facts() const {
  const Descriptor& d = descriptor_;
  return {spec_.choice.kind,     d.id, d.version, d.summary, spec_.library->path, spec_.library->hash,
          spec_.options->texts()};
}

std::string PluginInstance::label(bool with_path) const {
  return str("[", spec_.choice.kind, "] ", descriptor_.id, with_path ? " (" + spec_.library->path + ")" : "");
}

const void* PluginInstance::find_interface(const char* id) const {
  const void* found = nullptr;
  call("get_interface", Code::config, [&]() -> shale_status* {
    found = spec_.library->table.get_interface(self_, id);
    return nullptr;
  });
  return found;
}

void PluginInstance::bad_table(const char* id, const void* table, std::size_t baseline) const {
  if (table == nullptr) refuse(Code::config, str("declares the interface ", id, " but has no table for it"));
  refuse(Code::config, str("its table of ", id, " has ", size_of(table), " bytes, ABI 0.1 has ", baseline,
                           ": a broken build, rebuild it with this shale's sdk"));
}

Failure PluginInstance::failure(Code code, const std::string& text) const {
  return {code, code == Code::config ? spec_.choice.origin : Origin{""}, text, false};
}

Failure PluginInstance::threw(const char* doing, Code code, const std::string& what) const {
  return failure(code, str(label(true), ": ", doing, " threw a C++ exception (", one_line(what),
                           "): a bug of the plugin, its functions must return a status"));
}

void PluginInstance::refuse(Code code, const std::string& why) const {
  failure(code, label(true) + ": " + why).raise();
}

Failure PluginInstance::explain(Status s, const char* doing) const {
  if (s->code == SHALE_BAD_OPTION && spec_.options->declares(s->where))
    return {Code::config, spec_.options->origin(s->where),
            str("[", spec_.choice.kind, ".options] ", s->where, " ", one_line(s->text)), false};
  const Code code = s->cause ? s->cause->code() : code_of_status(s->code);
  const bool plugin_matters = code == Code::config || code == Code::internal;
  std::string text = str(label(plugin_matters), ": ", doing, ": ");
  if (!s->where.empty()) text += one_line(s->where) + ": ";
  text += s->text.empty() ? str("failed with status ", s->code, " and said nothing") : one_line(s->text);
  Failure out = failure(code, text);
  out.secondary = s->code == SHALE_CANCELLED || (s->cause && s->cause->secondary());
  return out;
}

void Failure::raise() const {
  Error error(code, origin.text.empty() ? text : origin.text + ": " + text);
  if (secondary) error.mark_secondary();
  throw error;
}

}  // namespace shale

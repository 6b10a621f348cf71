#include "core/loader/inspect_json.h"

#include <nlohmann/json.hpp>

namespace shale {
namespace {

using Json = nlohmann::ordered_json;

Json write(const OptionFacts& o) {
  return {{"key", o.key},     {"type", o.type}, {"default", o.required ? Json() : Json(o.fallback)},
          {"range", o.range}, {"unit", o.unit}, {"help", o.help}};
}

Json write(const DescriptorFacts& d) {
  Json options = Json::array();
  for (const OptionFacts& o : d.options) options.push_back(write(o));
  return {{"kind", d.kind},       {"id", d.id},
          {"version", d.version}, {"summary", d.summary},
          {"vendor", d.vendor},   {"license", d.license},
          {"url", d.url},         {"interfaces", d.interfaces},
          {"needs", d.needs},     {"capabilities", d.capabilities},
          {"options", options}};
}

OptionFacts read_option(const Json& j) {
  const bool required = j.at("default").is_null();
  return {j.at("key"),  j.at("type"), required ? "" : j.at("default").get<std::string>(), j.at("range"), j.at("unit"),
          j.at("help"), required};
}

DescriptorFacts read_descriptor(const Json& j) {
  DescriptorFacts d{j.at("kind"),
                    j.at("id"),
                    j.at("version"),
                    j.at("summary"),
                    j.at("vendor"),
                    j.at("license"),
                    j.at("url"),
                    j.at("interfaces"),
                    j.at("needs"),
                    j.at("capabilities"),
                    {}};
  for (const Json& o : j.at("options")) d.options.push_back(read_option(o));
  return d;
}

}  // namespace

std::string to_json(const PluginFile& f) {
  Json descriptors = Json::array();
  for (const DescriptorFacts& d : f.descriptors) descriptors.push_back(write(d));
  const Json out = {{"path", f.path},         {"hash", f.hash}, {"problem", f.problem},
                    {"shadowed", f.shadowed}, {"abi", f.abi},   {"descriptors", descriptors}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

bool from_json(const std::string& text, PluginFile& out) {
  try {
    const Json j = Json::parse(text);
    PluginFile f{j.at("path"), j.at("hash"), j.at("problem"), j.at("shadowed"), j.at("abi"), {}};
    for (const Json& d : j.at("descriptors")) f.descriptors.push_back(read_descriptor(d));
    out = std::move(f);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace shale

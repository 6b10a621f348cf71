#include "core/loader/options.h"

#include "core/base/text.h"
#include "core/loader/option_text.h"

namespace shale {

CheckedOptions::CheckedOptions(std::vector<OptionSpec> specs, const PluginChoice& choice, const std::string& folder,
                               ConfigErrors& errors)
    : specs_(std::move(specs)) {
  values_.resize(specs_.size());
  origins_.assign(specs_.size(), choice.origin);
  given_.assign(specs_.size(), false);
  report_unknown(choice, errors);
  for (std::size_t k = 0; k < specs_.size(); ++k) set(k, choice, folder, errors);
  fill();
}

void CheckedOptions::report_unknown(const PluginChoice& choice, ConfigErrors& errors) const {
  std::vector<std::string> keys;
  for (const OptionSpec& o : specs_) keys.push_back(o.key);
  for (const RawOption& given : choice.options) {
    if (declares(given.key)) continue;
    const std::string near = nearest(given.key, keys);
    const std::string hint = !near.empty()  ? str("; did you mean ", near, "?")
                             : keys.empty() ? std::string("; it has no options")
                                            : "; it has: " + join(keys, ", ");
    errors.add(given.key_origin,
               str("[", choice.kind, ".options] ", given.key, " is no option of the plugin ", choice.plugin, hint));
  }
}

void CheckedOptions::set(std::size_t k, const PluginChoice& choice, const std::string& folder, ConfigErrors& errors) {
  const OptionSpec& o = specs_[k];
  const RawOption* given = nullptr;
  for (const RawOption& candidate : choice.options)
    if (candidate.key == o.key) given = &candidate;  // a later layer (command line) overrides
  const std::string where = str("[", choice.kind, ".options] ", o.key, " ");
  if (given != nullptr) {
    given_[k] = true;
    origins_[k] = given->value_origin;
    if (const auto complaint = convert_option(o, given->value, folder, values_[k]))
      errors.add(given->value_origin, where + *complaint);
  } else if (o.required) {
    errors.add(choice.origin, str(where, "must be given: ", o.help.empty() ? o.type_name() : o.help));
  } else {
    (void)convert_option(o, o.default_value, folder, values_[k]);  // checked when the table was read
  }
}

void CheckedOptions::fill() {
  lists_.resize(specs_.size());
  for (std::size_t k = 0; k < specs_.size(); ++k) {
    const OptionValue& v = values_[k];
    for (const std::string& s : v.list) lists_[k].push_back(to_c(s));
    c_values_.push_back({specs_[k].type, given_[k] ? 1u : 0u, v.i, v.f, to_c(v.s), lists_[k].data(), lists_[k].size()});
  }
  config_ = {sizeof config_, static_cast<std::uint32_t>(c_values_.size()), c_values_.data()};
}

std::vector<OptionText> CheckedOptions::texts() const {
  std::vector<OptionText> out;
  for (std::size_t k = 0; k < specs_.size(); ++k) {
    const OptionValue& v = values_[k];
    RawValue raw;
    switch (specs_[k].type) {
      case SHALE_OPT_BOOL:
        raw = v.i != 0;
        break;
      case SHALE_OPT_INT:
      case SHALE_OPT_BYTES:
        raw = v.i;
        break;
      case SHALE_OPT_FLOAT:
      case SHALE_OPT_SECONDS:
        raw = v.f;
        break;
      case SHALE_OPT_TEXTS:
        raw = v.list;
        break;
      default:
        raw = v.s;
    }
    out.push_back({specs_[k].key, to_toml(raw), given_[k]});
  }
  return out;
}

bool CheckedOptions::declares(const std::string& key) const {
  for (const OptionSpec& o : specs_)
    if (o.key == key) return true;
  return false;
}

Origin CheckedOptions::origin(const std::string& key) const {
  for (std::size_t k = 0; k < specs_.size(); ++k)
    if (specs_[k].key == key) return origins_[k];
  return {};
}

}  // namespace shale

#include <algorithm>

#include "core/config/settings.h"

namespace shale {
namespace {

std::string comment(const Origin& origin, bool wanted) { return wanted ? str("  # ", origin.text) : ""; }

std::string options_text(const PluginChoice& choice, bool origins) {
  if (choice.options.empty()) return "";
  std::string out = str("\n[", choice.kind, ".options]\n");
  for (const RawOption& option : choice.options) {
    out += str(toml_key(option.key), " = ", toml_value(option.value), comment(option.value_origin, origins), "\n");
  }
  return out;
}

// A run has a length in steps or in epochs; writing both would contradict itself when read back.
bool left_out(const Key& key, const Config& config) {
  return key.section == "training" && key.name == "steps" && config.training.epochs > 0;
}

std::string section_text(Config& config, const std::string& section, bool origins) {
  std::string out = str("[", section, "]\n");
  for (const Key& key : keys()) {
    if (key.section != section || left_out(key, config)) continue;
    out += str(key.name, " = ", toml_value(value_of(key, config)), comment(config.origin(key.path()), origins), "\n");
  }
  if (is_plugin_section(section)) out += options_text(plugin_choice(config, section), origins);
  return out;
}

std::string help_line(const Key& key) {
  Config defaults;
  std::string out = str("  ", key.name, " = ", toml_value(value_of(key, defaults)), "  (", type_name(key));
  if (const std::string range = range_text(key); !range.empty()) out += str(", ", range);
  if (!key.unit.empty()) out += str("; ", key.unit);
  return str(out, ")\n      ", key.help, "\n");
}

}  // namespace

std::string render(const Config& config, bool origins) {
  Config copy = config;
  std::vector<std::string> parts;
  for (const std::string& section : sections()) parts.push_back(section_text(copy, section, origins));
  return join(parts, "\n");
}

std::string print_config(const Config& config) {
  return str("# ", config.file, ", resolved; the comment says where a value was written\n\n", render(config, true));
}

std::string config_help() {
  std::string out =
      "Keys of a TOML file, with default, type, range and unit. Each may also be given as --section.key=value or in\n"
      "the environment as SHALE_SECTION_KEY; the command line wins over the environment, the environment over the "
      "file.\n";
  for (const std::string& section : sections()) {
    out += str("\n[", section, "]\n");
    for (const Key& key : keys()) {
      if (key.section == section) out += help_line(key);
    }
    if (is_plugin_section(section)) {
      out += str("[", section, ".options]\n  what the plugin offers: shale plugin info <name>\n");
    }
  }
  return out;
}

}  // namespace shale

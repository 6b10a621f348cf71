#include "core/config/settings.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace shale {
namespace {

constexpr std::string_view kOptions = "options";

// Variables that start like settings and are none: the program's own, and those of its scripts and tests.
constexpr std::array<std::string_view, 4> kReserved{"SHALE_PLUGIN_PATH", "SHALE_CACHE", "SHALE_PYTHON", "SHALE_TESTS"};
constexpr std::string_view kReservedPrefix = "SHALE_TEST_";

bool is_reserved(const std::string& name) {
  return name.starts_with(kReservedPrefix) || std::ranges::find(kReserved, name) != kReserved.end();
}

// "SHALE_SHARDING_OPTIONS_SHARD_SIZE" -> "sharding.options.shard_size"; "" for a name that is no setting.
std::string path_of(const std::string& variable) {
  for (const Key& key : keys()) {
    if (variable_of(key.path()) == variable) return key.path();
  }
  for (const std::string& section : sections()) {
    const std::string prefix = variable_of(section + ".options.");
    if (!is_plugin_section(section) || !variable.starts_with(prefix) || variable.size() == prefix.size()) continue;
    std::string option = variable.substr(prefix.size());
    std::ranges::transform(option, option.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    return str(section, ".options.", option);
  }
  return "";
}

std::string unknown_variable(const std::string& name) {
  std::vector<std::string> known(kReserved.begin(), kReserved.end());
  for (const Key& key : keys()) known.push_back(variable_of(key.path()));
  const std::string near = nearest(name, known);
  return str("is not a variable of shale", near.empty() ? "; unset it" : str("; did you mean ", near, "?"));
}

bool is_name(const std::string& text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && std::ranges::all_of(text, good);
}

}  // namespace

void Settings::set_origin(const Key& key, const Origin& origin) {
  const std::string path = key.path();
  const auto known = std::ranges::find_if(config_.origins, [&](const auto& pair) { return pair.first == path; });
  if (known == config_.origins.end()) {
    config_.origins.emplace_back(path, origin);
  } else {
    known->second = origin;
  }
  if (key.name == "plugin") resolve_plugin(key, origin);
}

// wrong: what is wrong with the value, "" when the key itself is not known.
void Settings::refuse(const Origin& at, const std::string& section, const std::string& key, const std::string& wrong) {
  errors_.add(at, wrong.empty() ? unknown_key(section, key) : str("[", section, "] ", key, " ", wrong));
  const std::string meant = wrong.empty() ? nearest(key, names_of_section(section)) : key;
  doubtful_.push_back(str(section, ".", meant));
}

// A path stands beside the TOML file, wherever the program was started.
void Settings::resolve_plugin(const Key& key, const Origin& origin) {
  PluginChoice& choice = plugin_choice(config_, key.section);
  choice.origin = origin;
  if (choice.plugin.find('/') != std::string::npos) {
    const std::filesystem::path folder = std::filesystem::absolute(config_.file).parent_path();
    choice.plugin = (folder / choice.plugin).lexically_normal().string();
  } else if (!is_name(choice.plugin)) {
    errors_.add(origin, str("[", key.section, "] plugin must be a name or a path with a slash (got ",
                            toml_string(choice.plugin), "); a library beside the file is written \"./x.so\""));
  }
}

void Settings::take_option(const std::string& section, RawOption option) {
  std::vector<RawOption>& options = plugin_choice(config_, section).options;
  const auto place = std::ranges::lower_bound(options, option.key, {}, &RawOption::key);
  if (place != options.end() && place->key == option.key) {
    *place = std::move(option);
  } else {
    options.insert(place, std::move(option));
  }
}

void Settings::take_line(const Line& line) {
  const std::string& section = line.path.front();
  const bool known = !names_of_section(section).empty();
  if (line.path.size() == 1) {
    if (!known) errors_.add(line.key, unknown_section(section));
    if (known && !line.is_table) {
      errors_.add(line.value, str("[", section, "] must be a table (got ", line.written.type, ")"));
    }
    return;
  }
  if (!known) return;  // said at its header
  const std::string& name = line.path[1];
  const bool options = name == kOptions && is_plugin_section(section);
  if (line.path.size() == 3) {
    if (!options) return;
    const std::string& option = line.path[2];
    if (line.written.value) return take_option(section, {option, *line.written.value, line.key, line.value});
    const char* allowed = " must be true or false, a number, a string or a list of strings (got ";
    return errors_.add(line.value, str("[", section, ".options] ", option, allowed, line.written.type, ")"));
  }
  if (options) {
    if (!line.is_table) {
      errors_.add(line.value, str("[", section, ".options] must be a table (got ", line.written.type, ")"));
    }
    return;
  }
  const Key* key = find_key(section, name);
  if (key == nullptr) return refuse(line.key, section, name, "");
  const std::string wrong = assign(*key, line.written, config_);
  if (!wrong.empty()) return refuse(line.value, section, name, wrong);
  set_origin(*key, line.value);
}

void Settings::take_file() {
  for (const Line& line : parse_toml(config_.file, read_text_file(config_.file))) take_line(line);
}

// path: "section.key" or "section.options.key".
void Settings::take_text(const std::string& path, const std::string& text, const Origin& origin) {
  const std::size_t dot = path.find('.');
  const std::string section = path.substr(0, dot), rest = dot == std::string::npos ? "" : path.substr(dot + 1);
  if (names_of_section(section).empty()) return errors_.add(origin, unknown_section(section));
  if (rest.empty()) return errors_.add(origin, str("names no key; write ", origin.text, ".key=value"));
  if (valid_utf8(text) < text.size()) return errors_.add(origin, str("[", section, "] ", rest, " is not UTF-8 text"));
  const std::string prefix = str(kOptions, ".");
  if (is_plugin_section(section) && rest.starts_with(prefix) && rest.size() > prefix.size()) {
    return take_option(section, {rest.substr(prefix.size()), guess(text), origin, origin});
  }
  const Key* key = find_key(section, rest);
  if (key == nullptr) return refuse(origin, section, rest, "");
  const std::string wrong = assign_text(*key, text, config_);
  if (!wrong.empty()) return refuse(origin, section, rest, wrong);
  set_origin(*key, origin);
}

void Settings::take_environment(const Environment& environment) {
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("SHALE_") || value.empty() || is_reserved(name)) continue;
    const std::string path = path_of(name);
    if (path.empty()) {
      errors_.add({name}, unknown_variable(name));
    } else {
      take_text(path, value, {name});
    }
  }
  config_.plugin_path = read_plugin_path(environment);
  for (const std::string& folder : config_.plugin_path) {
    if (!folder.starts_with('/')) errors_.add({"SHALE_PLUGIN_PATH"}, str(folder, " must be an absolute path"));
  }
  const std::string scratch = lookup(environment, "TMPDIR");
  config_.scratch_dir = scratch.empty() ? "/tmp" : scratch;
}

void Settings::take_overrides(const std::vector<Override>& overrides) {
  for (const Override& one : overrides) take_text(one.key, one.value, {"--" + one.key});
}

}  // namespace shale

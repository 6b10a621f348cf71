// The one table of every key: parsing, overrides, help, printing and error messages all come from it. Private to this
// room.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/config/config.h"

namespace shale {

// Where a key's value lives in a Config; the alternative is the key's type, in the order of RawValue.
using Slot = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*>;

struct Limits {
  double least = -std::numeric_limits<double>::max(), most = std::numeric_limits<double>::max();
  bool open = false;                                           // least and most themselves are not allowed
  double or_value = std::numeric_limits<double>::quiet_NaN();  // allowed although outside
};

struct Key {
  std::string_view section, name;
  Slot (*slot)(Config&);
  std::string_view unit;     // "" = none
  std::string_view choices;  // "a|b"; "" = any
  Limits limits;
  std::string_view help;

  std::string path() const { return str(section, ".", name); }
};

std::span<const Key> keys();  // in the order they are printed
const Key* find_key(std::string_view section, std::string_view name);
std::vector<std::string> sections();
std::vector<std::string> names_of_section(std::string_view);  // empty for one that is not there
bool is_plugin_section(std::string_view section);             // may hold "plugin" and an [<section>.options] table
PluginChoice& plugin_choice(Config&, std::string_view section);

std::string variable_of(std::string_view path);  // "training.steps" -> "SHALE_TRAINING_STEPS"
std::string type_name(const Key&);               // "an integer"
std::string range_text(const Key&);              // "at least 1", "linear | cosine", ""; unit not included

// What is wrong with a name, and what was probably meant: "is not a key; did you mean steps?".
std::string unknown_key(std::string_view section, const std::string& name);
std::string unknown_section(const std::string& name);

}  // namespace shale

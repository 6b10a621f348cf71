// The options of a plugin: its own table, read once, and the user's values checked against it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/loader/abi.h"
#include "core/loader/plugins.h"

namespace shale {

struct OptionValue {  // which members count: SHALE_OPT_... in sdk/include/shale/plugin.h
  std::int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<std::string> list;
};

struct OptionSpec {  // a row of the table
  std::uint32_t type = 0;
  std::string key, help, unit;
  std::string min, max, fallback;               // as the plugin spelt them
  RawValue default_value;                       // unless required
  std::optional<double> least, most;            // FLOAT, SECONDS
  std::optional<std::int64_t> least_i, most_i;  // INT, BYTES
  bool required = false;                        // no default
  std::vector<std::string> choices;

  std::string type_name() const;  // "integer", "one of a | b", ...
  std::string range() const;      // "1..65536 ranks", "at least 1 s", "" = none
};

// Error{config} naming the row that is wrong; its defaults and bounds are parsed here.
std::vector<OptionSpec> read_option_table(const shale_option* options, std::uint32_t n, std::uint32_t stride);

// One value against one row: what is wrong with it ("must be 1..8 ranks (got 9)") or nothing, and then `out`.
// folder: where relative paths start.
std::optional<std::string> convert_option(const OptionSpec&, const RawValue&, const std::string& folder,
                                          OptionValue& out);

// The checked values as the C struct a plugin keeps. Not movable: the struct points into it.
class CheckedOptions {
 public:
  // Everything wrong with the user's values goes to `errors`; then the values must not be used.
  CheckedOptions(std::vector<OptionSpec> specs, const PluginChoice&, const std::string& folder, ConfigErrors& errors);
  CheckedOptions(const CheckedOptions&) = delete;
  CheckedOptions& operator=(const CheckedOptions&) = delete;

  const shale_config* config() const { return &config_; }
  std::vector<OptionText> texts() const;
  bool declares(const std::string& key) const;
  Origin origin(const std::string& key) const;  // of the value, or of the plugin's choice when it is the default

 private:
  void set(std::size_t k, const PluginChoice&, const std::string& folder, ConfigErrors&);
  void report_unknown(const PluginChoice&, ConfigErrors&) const;
  void fill();

  std::vector<OptionSpec> specs_;
  std::vector<OptionValue> values_;
  std::vector<Origin> origins_;
  std::vector<bool> given_;
  std::vector<std::vector<shale_str>> lists_;
  std::vector<shale_value> c_values_;
  shale_config config_{};
};

}  // namespace shale

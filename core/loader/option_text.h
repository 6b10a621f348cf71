// Spelling of option values: quantities with units, and values in TOML.
#pragma once

#include <optional>
#include <string>

#include "core/config/config.h"

namespace shale {

std::optional<double> parse_seconds(const std::string&);      // "30", "30s", "250ms", "5min", "2h", "1d"
std::optional<std::int64_t> parse_bytes(const std::string&);  // "4096", "4GiB", "1.5 MB"; whole bytes, not negative
std::optional<RawValue> parse_toml(const std::string&);       // one TOML value: "8", "true", "[\"a\"]"
std::string to_toml(const RawValue&);

}  // namespace shale

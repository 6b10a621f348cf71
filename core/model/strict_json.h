// JSON from files that are not trusted: one value, every key once, bounded depth. Any thread.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace shale {

// Error{input} starting with `where` (a file name) when the text is not such JSON.
nlohmann::json parse_strict(std::string_view text, const std::string& where);

// A value for a message: its JSON text, cut when long.
std::string shown(const nlohmann::json&);

}  // namespace shale

// The environment as a value, so that whatever reads it can be tested; the process's own is read here and nowhere else.
#pragma once

#include <map>
#include <string>

namespace shale {

using Environment = std::map<std::string, std::string>;

Environment process_environment();

// The value, or "" when the variable is unset or empty: both mean "not given".
std::string lookup(const Environment&, const std::string& name);

}  // namespace shale

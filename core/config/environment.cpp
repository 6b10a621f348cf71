#include "core/config/environment.h"

#include <string_view>

#include <unistd.h>

namespace shale {

Environment process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equal = text.find('=');
    if (equal != std::string_view::npos) out.emplace(text.substr(0, equal), text.substr(equal + 1));
  }
  return out;
}

std::string lookup(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace shale

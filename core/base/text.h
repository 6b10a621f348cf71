// Small text helpers. No state; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Concatenates anything an ostream can print: str("rank ", 3) == "rank 3".
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  ((out << parts), ...);
  return out.str();
}

std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);  // "" -> {}

// The candidate nearest to `name` by edit distance, or "" when none is near enough to be a typing error.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

std::string human_bytes(double bytes);      // "1.5 MiB"
std::string human_seconds(double seconds);  // "1h02m", "3m10s", "4.2s"

// Full-precision text of a double that reads back to the same bits; "nan", "inf" as such.
std::string exact(double value);

}  // namespace shale

#include "core/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace shale {
namespace {

// Names longer than this are nobody's typing error for one of ours; also bounds the work on hostile input.
constexpr std::size_t kLongestName = 128;

// Edit distance where swapping two neighbours counts once (optimal string alignment). O(a*b) time, three rows.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

char plain(char c) {  // "Local-Batch" and "local_batch" are the same word to a reader
  if (c == '-' || c == ' ') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string plain(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return plain(c); });
  return out;
}

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  const int n = std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return n > 0 && n < static_cast<int>(text.size()) ? std::string(text.data(), n) : exact(value);
}

}  // namespace

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
    if (text.empty()) out.emplace_back();
  }
  return out;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  if (name.empty() || name.size() > kLongestName) return "";
  const std::string wanted = plain(name);
  std::string best;
  // A third of the letters may be wrong; one in the shortest names.
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestName) continue;
    const std::size_t distance = edit_distance(wanted, plain(candidate));
    // "fp8" must not be offered for "abc": at least half of the longer word has to agree.
    if (distance >= least || 2 * distance > std::max(wanted.size(), candidate.size())) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string human_bytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (!std::isfinite(bytes)) return exact(bytes) + " B";
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1023.95 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fixed(bytes, unit == 0 ? 0 : 1) + " " + kUnits[unit];
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e15) return exact(seconds) + "s";
  if (seconds < 0) return "-" + human_seconds(-seconds);
  if (seconds < 0.0995) return fixed(seconds * 1000, 1) + "ms";
  if (seconds < 59.95) return fixed(seconds, 1) + "s";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const auto two = [](std::int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 3600) return std::to_string(whole / 60) + "m" + two(whole % 60) + "s";
  return std::to_string(whole / 3600) + "h" + two(whole % 3600 / 60) + "m";
}

std::string exact(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::string(text.data(), end) : str(value);
}

}  // namespace shale

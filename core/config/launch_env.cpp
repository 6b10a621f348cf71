#include "core/config/launch_env.h"

#include <charconv>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::size_t kMostHosts = 100'000, kLongestItem = 4096, kMostDigits = 12;
constexpr int kFirstPort = 10000, kPorts = 20000;

std::optional<std::int64_t> parse(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void bad_list(const std::string& variable, const std::string& list) {
  fail(Code::config, variable, "=", list, " is not a list this program can read; set RANK, WORLD_SIZE, MASTER_ADDR");
}

// Splits at commas outside of brackets.
std::vector<std::string> items(const std::string& variable, const std::string& list) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : list) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) bad_list(variable, list);
    if (c == ',' && depth == 0) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (depth != 0) bad_list(variable, list);
  return out;
}

// "01-03" -> 01 02 03, with the zeros; "7" -> 7.
std::vector<std::string> expand_range(const std::string& variable, const std::string& range) {
  const std::size_t dash = range.find('-');
  const std::string low = range.substr(0, dash), high = dash == std::string::npos ? low : range.substr(dash + 1);
  const auto from = parse(low), to = parse(high);
  if (low.size() > kMostDigits || !from || !to || *from < 0 || *to < *from ||
      *to - *from >= static_cast<std::int64_t>(kMostHosts)) {
    bad_list(variable, range);
  }
  std::vector<std::string> out;
  for (std::int64_t n = *from; n <= *to; ++n) {
    std::string digits = std::to_string(n);
    if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
    out.push_back(digits);
  }
  return out;
}

// One item with any number of bracket groups: "rack[1-2]n[01,03]".
std::vector<std::string> expand_item(const std::string& variable, const std::string& item) {
  if (item.empty() || item.size() > kLongestItem) bad_list(variable, item);
  std::vector<std::string> out{""};
  std::size_t at = 0;
  while (at < item.size()) {
    const std::size_t open = item.find('[', at);
    for (std::string& host : out) host += item.substr(at, open - at);
    if (open == std::string::npos) break;
    const std::size_t close = item.find(']', open);
    std::vector<std::string> numbers;
    for (const std::string& range : split(item.substr(open + 1, close - open - 1), ',')) {
      for (std::string& n : expand_range(variable, range)) numbers.push_back(std::move(n));
    }
    if (numbers.empty() || out.size() * numbers.size() > kMostHosts) bad_list(variable, item);
    std::vector<std::string> longer;
    for (const std::string& host : out) {
      for (const std::string& n : numbers) longer.push_back(host + n);
    }
    out = std::move(longer);
    at = close + 1;
  }
  return out;
}

}  // namespace

std::optional<std::int64_t> number(const Environment& environment, const std::string& name, std::int64_t least,
                                   std::int64_t most) {
  const std::string text = lookup(environment, name);
  if (text.empty()) return std::nullopt;
  const auto value = parse(text);
  if (!value || *value < least || *value > most) {
    fail(Code::config, name, "=", text, ": must be a whole number from ", least, " to ", most);
  }
  return value;
}

std::optional<Found> first_number(const Environment& environment, const std::vector<std::string>& names,
                                  std::int64_t least, std::int64_t most) {
  for (const std::string& name : names) {
    if (const auto value = number(environment, name, least, most)) return Found{name, *value};
  }
  return std::nullopt;
}

std::vector<std::string> expand_hosts(const std::string& variable, const std::string& list) {
  std::vector<std::string> out;
  for (const std::string& item : items(variable, list)) {
    for (std::string& host : expand_item(variable, item)) out.push_back(std::move(host));
    if (out.size() > kMostHosts) bad_list(variable, list);
  }
  return out;
}

std::vector<std::int64_t> expand_tasks(const std::string& variable, const std::string& list) {
  std::vector<std::int64_t> out;
  for (const std::string& item : split(list, ',')) {
    const std::size_t open = item.find("(x");
    const auto tasks = parse(item.substr(0, open));
    std::optional<std::int64_t> times = 1;
    if (open != std::string::npos) {
      times = item.back() == ')' ? parse(item.substr(open + 2, item.size() - open - 3)) : std::nullopt;
    }
    if (!tasks || *tasks < 1 || !times || *times < 1 || *times > static_cast<std::int64_t>(kMostHosts)) {
      bad_list(variable, list);
    }
    out.insert(out.end(), static_cast<std::size_t>(*times), *tasks);
    if (out.size() > kMostHosts) bad_list(variable, list);
  }
  return out;
}

int port_of_job(const std::string& job) {
  if (const auto id = parse(job); id && *id >= 0) return kFirstPort + static_cast<int>(*id % kPorts);
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

}  // namespace shale

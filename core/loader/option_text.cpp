#include "core/loader/option_text.h"

#include <charconv>
#include <cmath>
#include <span>

#include <toml++/toml.h>

#include "core/base/text.h"

namespace shale {
namespace {

struct Unit {
  const char* name;
  double factor;
};
constexpr Unit kTimes[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"min", 60}, {"h", 3600}, {"d", 86400}};
constexpr Unit kSizes[] = {{"", 1},
                           {"B", 1},
                           {"kB", 1e3},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0}};

// "<number>[ ]<unit>" with a finite number that is not negative.
std::optional<double> parse_quantity(const std::string& text, std::span<const Unit> units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(rest, end);
  if (unit.starts_with(' ')) unit.erase(0, 1);
  for (const Unit& u : units)
    if (unit == u.name) return number * u.factor;
  return std::nullopt;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      constexpr char kHex[] = "0123456789ABCDEF";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::optional<RawValue> from_node(const toml::node& node) {
  if (auto* b = node.as_boolean()) return RawValue(b->get());
  if (auto* i = node.as_integer()) return RawValue(i->get());
  if (auto* f = node.as_floating_point()) return RawValue(f->get());
  if (auto* s = node.as_string()) return RawValue(s->get());
  const auto* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<std::string> list;
  for (const auto& element : *array) {
    if (!element.is_string()) return std::nullopt;
    list.push_back(element.as_string()->get());
  }
  return RawValue(list);
}

}  // namespace

std::optional<double> parse_seconds(const std::string& text) { return parse_quantity(text, kTimes); }

std::optional<std::int64_t> parse_bytes(const std::string& text) {
  const auto bytes = parse_quantity(text, kSizes);
  if (!bytes || *bytes > 9e18 || *bytes != std::floor(*bytes)) return std::nullopt;
  return static_cast<std::int64_t>(*bytes);
}

std::optional<RawValue> parse_toml(const std::string& text) {
  try {
    const toml::table table = toml::parse("x = " + text);
    if (table.size() != 1) return std::nullopt;
    return from_node(*table.get("x"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::string to_toml(const RawValue& value) {
  struct Writer {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t i) const { return str(i); }
    std::string operator()(double f) const {
      const std::string text = exact(f);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& s) const { return quoted(s); }
    std::string operator()(const std::vector<std::string>& list) const {
      std::vector<std::string> parts;
      for (const auto& s : list) parts.push_back(quoted(s));
      return "[" + join(parts, ", ") + "]";
    }
  };
  return std::visit(Writer{}, value);
}

}  // namespace shale

#include "core/config/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace shale {
namespace {

constexpr std::size_t kLongestShown = 60;

template <class T>
std::optional<T> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// "a, b" or ["a", "b"] without commas or escapes inside the strings.
std::vector<std::string> parse_list(std::string_view text) {
  std::string inner = trimmed(text);
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']') inner = inner.substr(1, inner.size() - 2);
  std::vector<std::string> out;
  for (const std::string& part : split(inner, ',')) {
    std::string item = trimmed(part);
    const bool quoted =
        item.size() >= 2 && (item.front() == '"' || item.front() == '\'') && item.back() == item.front();
    if (quoted) item = item.substr(1, item.size() - 2);
    if (!item.empty() || quoted) out.push_back(item);
  }
  return out;
}

std::string shown(const RawValue& value) {
  std::string text = toml_value(value);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

std::string bad_type(const Key& key, const std::string& got) {
  return str("must be ", type_name(key), " (got ", got, ")");
}

std::string check_number(const Key& key, double value, const RawValue& raw) {
  const Limits& limits = key.limits;
  const bool inside =
      limits.open ? value > limits.least && value < limits.most : value >= limits.least && value <= limits.most;
  if (inside || value == limits.or_value) return "";
  const std::string range = range_text(key);
  return str("must be ", range.empty() ? "finite" : range, " (got ", shown(raw), ")");
}

std::string check_string(const Key& key, const std::string& value) {
  if (value.find('\0') != std::string::npos) return "must not hold a NUL character";
  if (key.choices.empty()) return "";
  const std::vector<std::string> choices = split(key.choices, '|');
  if (std::ranges::find(choices, value) != choices.end()) return "";
  const std::string near = nearest(value, choices);
  return str("must be one of ", range_text(key), " (got ", shown(value), ")",
             near.empty() ? "" : str("; did you mean ", near, "?"));
}

std::string check_value(const Key& key, const RawValue& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return check_number(key, static_cast<double>(*n), value);
  if (const auto* x = std::get_if<double>(&value)) return check_number(key, *x, value);
  if (const auto* text = std::get_if<std::string>(&value)) return check_string(key, *text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *list) {
      if (std::string wrong = check_string(key, text); !wrong.empty()) return wrong;
    }
  }
  return "";
}

// value already has the key's type.
std::string store(const Key& key, const RawValue& value, Config& config) {
  if (std::string wrong = check_value(key, value); !wrong.empty()) return wrong;
  std::visit([&](auto* slot) { *slot = std::get<std::remove_pointer_t<decltype(slot)>>(value); }, key.slot(config));
  return "";
}

}  // namespace

std::string raw_type(const RawValue& value) {
  static constexpr std::array<const char*, 5> kTypes{"true or false", "an integer", "a number", "a string",
                                                     "a list of strings"};
  return kTypes.at(value.index());
}

std::string assign(const Key& key, const Written& written, Config& config) {
  if (!written.value) return bad_type(key, written.type);
  RawValue value = *written.value;
  const std::size_t wanted = key.slot(config).index();
  if (wanted == 2 && std::holds_alternative<std::int64_t>(value)) {
    value = static_cast<double>(std::get<std::int64_t>(value));
  }
  if (value.index() != wanted) return bad_type(key, str(written.type, ", ", shown(value)));
  return store(key, value, config);
}

std::string assign_text(const Key& key, const std::string& text, Config& config) {
  std::optional<RawValue> value;
  switch (key.slot(config).index()) {
    case 0:
      if (auto b = parse_bool(text)) value = *b;
      break;
    case 1:
      if (auto n = parse_number<std::int64_t>(text)) value = *n;
      break;
    case 2:
      if (auto x = parse_number<double>(text)) value = *x;
      break;
    case 3:
      value = text;
      break;
    default:
      value = parse_list(text);
      break;
  }
  return value ? store(key, *value, config) : bad_type(key, shown(text));
}

RawValue guess(const std::string& text) {
  if (auto b = parse_bool(text)) return *b;
  if (auto n = parse_number<std::int64_t>(text)) return *n;
  if (auto x = parse_number<double>(text)) return *x;
  if (text.size() < 2) return text;
  if (text.front() == '[' && text.back() == ']') return parse_list(text);
  const bool quoted = (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

std::string toml_string(const std::string& text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 32 || byte == 127) {
      out += str("\\u00", kDigits[byte >> 4], kDigits[byte & 15]);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string toml_value(const RawValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* n = std::get_if<std::int64_t>(&value)) return str(*n);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
  if (const auto* x = std::get_if<double>(&value)) {
    const std::string text = exact(*x);
    return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
  }
  std::vector<std::string> items;
  for (const std::string& text : std::get<std::vector<std::string>>(value)) items.push_back(toml_string(text));
  return str("[", join(items, ", "), "]");
}

std::string toml_key(const std::string& key) {
  const auto bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !key.empty() && std::ranges::all_of(key, bare) ? key : toml_string(key);
}

RawValue value_of(const Key& key, const Config& config) {
  // The slot of a key is read only here; the table has one accessor for reading and writing.
  return std::visit([](auto* slot) -> RawValue { return *slot; }, key.slot(const_cast<Config&>(config)));
}

}  // namespace shale

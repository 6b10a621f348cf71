#include "core/loader/options.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/loader/option_text.h"
#include "core/loader/status.h"

namespace shale {
namespace {

constexpr const char* kTypeNames[] = {"",       "true or false",     "an integer", "a number", "a text",
                                      "one of", "a number of bytes", "a duration", "a path",   "a list of texts"};
constexpr std::uint32_t kMostOptions = 1000;

using Complaint = std::optional<std::string>;

std::string got(const RawValue& v) { return str(" (got ", to_toml(v), ")"); }

bool is_integer_like(std::uint32_t type) { return type == SHALE_OPT_INT || type == SHALE_OPT_BYTES; }
bool has_bounds(std::uint32_t type) {
  return is_integer_like(type) || type == SHALE_OPT_FLOAT || type == SHALE_OPT_SECONDS;
}

Complaint wrong_type(const OptionSpec& o, const RawValue& v) {
  std::string hint;
  if (o.type == SHALE_OPT_BYTES) hint = ", such as 4096 or \"4GiB\"";
  if (o.type == SHALE_OPT_SECONDS) hint = ", such as 30 or \"5min\"";
  return str("must be ", o.type_name(), hint, got(v));
}

Complaint out_of_range(const OptionSpec& o, const RawValue& v) { return str("must be ", o.range(), got(v)); }

Complaint convert_integer(const OptionSpec& o, const RawValue& v, OptionValue& out) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) {
    out.i = *i;
  } else if (const auto* s = std::get_if<std::string>(&v); s != nullptr && o.type == SHALE_OPT_BYTES) {
    const auto bytes = parse_bytes(*s);
    if (!bytes) return wrong_type(o, v);
    out.i = *bytes;
  } else {
    return wrong_type(o, v);
  }
  if (o.type == SHALE_OPT_BYTES && out.i < 0) return wrong_type(o, v);
  if ((o.least_i && out.i < *o.least_i) || (o.most_i && out.i > *o.most_i)) return out_of_range(o, v);
  out.f = static_cast<double>(out.i);
  return std::nullopt;
}

Complaint convert_number(const OptionSpec& o, const RawValue& v, OptionValue& out) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) {
    out.f = static_cast<double>(*i);
  } else if (const auto* f = std::get_if<double>(&v)) {
    out.f = *f;
  } else if (const auto* s = std::get_if<std::string>(&v); s != nullptr && o.type == SHALE_OPT_SECONDS) {
    const auto seconds = parse_seconds(*s);
    if (!seconds) return wrong_type(o, v);
    out.f = *seconds;
  } else {
    return wrong_type(o, v);
  }
  if (!std::isfinite(out.f) || (o.type == SHALE_OPT_SECONDS && out.f < 0)) return wrong_type(o, v);
  if ((o.least && out.f < *o.least) || (o.most && out.f > *o.most)) return out_of_range(o, v);
  return std::nullopt;
}

Complaint convert_text(const OptionSpec& o, const RawValue& v, const std::string& folder, OptionValue& out) {
  const auto* s = std::get_if<std::string>(&v);
  if (s == nullptr || s->find('\0') != std::string::npos) return wrong_type(o, v);
  out.s = *s;
  if (o.type == SHALE_OPT_PATH && !s->empty())
    out.s = (std::filesystem::path(folder) / *s).lexically_normal().string();  // an absolute one stays itself
  if (o.type != SHALE_OPT_CHOICE) return std::nullopt;
  for (std::size_t k = 0; k < o.choices.size(); ++k)
    if (o.choices[k] == *s) return out.i = static_cast<std::int64_t>(k), std::nullopt;
  const std::string near = nearest(*s, o.choices);
  return str("must be ", o.type_name(), got(v), near.empty() ? "" : "; did you mean \"" + near + "\"?");
}

[[noreturn]] void bad_row(const std::string& row, const std::string& what) {
  fail(Code::config, "its option table is wrong: ", row, " ", what, ": a bug of the plugin");
}

bool good_key(const std::string& key) {
  return !key.empty() && key.size() <= 64 && key[0] >= 'a' && key[0] <= 'z' &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

// A default or bound as the user would have written it.
std::optional<RawValue> spelt(std::uint32_t type, const std::string& text) {
  switch (type) {
    case SHALE_OPT_TEXT:
    case SHALE_OPT_CHOICE:
    case SHALE_OPT_PATH:
    case SHALE_OPT_BYTES:
    case SHALE_OPT_SECONDS:
      return RawValue(text);
    default:
      return parse_toml(text);
  }
}

void read_bound(OptionSpec& o, const char* name, const std::string& text, bool lower) {
  OptionSpec unbounded;
  unbounded.type = o.type;
  OptionValue value;
  const auto raw = spelt(o.type, text);
  if (!has_bounds(o.type) || !raw || convert_option(unbounded, *raw, "/", value))
    bad_row(o.key, str("has the ", name, " \"", text, "\", which is no bound for ", o.type_name()));
  if (is_integer_like(o.type))
    (lower ? o.least_i : o.most_i) = value.i;
  else
    (lower ? o.least : o.most) = value.f;
}

OptionSpec read_row(const shale_option& c, std::uint32_t position) {
  OptionSpec o;
  o.type = c.type;
  o.key = to_text(c.key), o.help = to_text(c.help), o.unit = to_text(c.unit);
  o.min = to_text(c.min), o.max = to_text(c.max), o.fallback = to_text(c.fallback);
  o.required = c.fallback == nullptr;
  if (!good_key(o.key)) bad_row(str("row ", position), "has the key \"" + one_line(o.key) + "\", not [a-z][a-z0-9_]*");
  if (o.type < SHALE_OPT_BOOL || o.type > SHALE_OPT_TEXTS)
    fail(Code::config, "its option ", o.key, " has type ", o.type,
         ", which this shale does not know: use a newer shale");
  if (o.type == SHALE_OPT_CHOICE) {
    o.choices = split(to_text(c.choices), '|');
    if (o.choices.empty()) bad_row(o.key, "has no choices");
  }
  if (c.min != nullptr) read_bound(o, "minimum", o.min, true);
  if (c.max != nullptr) read_bound(o, "maximum", o.max, false);
  if ((o.least_i && o.most_i && *o.least_i > *o.most_i) || (o.least && o.most && *o.least > *o.most))
    bad_row(o.key, str("has the minimum ", o.min, " above the maximum ", o.max));
  if (o.required) return o;
  const auto raw = spelt(o.type, o.fallback);
  if (!raw) bad_row(o.key, str("has the default \"", o.fallback, "\", which is not ", o.type_name()));
  o.default_value = *raw;
  OptionValue ignored;
  if (const auto complaint = convert_option(o, *raw, "/", ignored)) bad_row(o.key, "has a default that " + *complaint);
  return o;
}

}  // namespace

std::string OptionSpec::type_name() const {
  if (type == SHALE_OPT_CHOICE) return "one of " + join(choices, " | ");
  return type <= SHALE_OPT_TEXTS ? kTypeNames[type] : "";
}

std::string OptionSpec::range() const {
  const std::string after = unit.empty() ? "" : " " + unit;
  if (!min.empty() && !max.empty()) return min + ".." + max + after;
  if (!min.empty()) return "at least " + min + after;
  return max.empty() ? "" : "at most " + max + after;
}

std::vector<OptionSpec> read_option_table(const shale_option* options, std::uint32_t n, std::uint32_t stride) {
  std::vector<OptionSpec> specs;
  if (n == 0) return specs;
  if (options == nullptr || n > kMostOptions || stride < kBaseline<shale_option> || stride % alignof(shale_option) != 0)
    fail(Code::config, "its option table is wrong: ", n, " rows of ", stride, " bytes (a row has at least ",
         kBaseline<shale_option>, "): a bug of the plugin");
  std::set<std::string> keys;
  for (std::uint32_t k = 0; k < n; ++k) {
    const auto* bytes = reinterpret_cast<const char*>(options) + static_cast<std::size_t>(k) * stride;
    shale_option row;
    if (size_of(bytes) > stride || !take(reinterpret_cast<const shale_option*>(bytes), row))
      bad_row(str("row ", k), str("says it has ", size_of(bytes), " bytes"));
    specs.push_back(read_row(row, k));
    if (!keys.insert(specs.back().key).second) bad_row(specs.back().key, "is there twice");
  }
  return specs;
}

std::optional<std::string> convert_option(const OptionSpec& o, const RawValue& v, const std::string& folder,
                                          OptionValue& out) {
  switch (o.type) {
    case SHALE_OPT_BOOL:
      if (!std::holds_alternative<bool>(v)) return wrong_type(o, v);
      out.i = std::get<bool>(v);
      return std::nullopt;
    case SHALE_OPT_INT:
    case SHALE_OPT_BYTES:
      return convert_integer(o, v, out);
    case SHALE_OPT_FLOAT:
    case SHALE_OPT_SECONDS:
      return convert_number(o, v, out);
    case SHALE_OPT_TEXTS:
      if (!std::holds_alternative<std::vector<std::string>>(v)) return wrong_type(o, v);
      out.list = std::get<std::vector<std::string>>(v);
      return std::nullopt;
    default:
      return convert_text(o, v, folder, out);
  }
}

}  // namespace shale

#include "core/checkpoint/json.h"

#include <cstdlib>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace shale {
namespace {

constexpr int kDeepest = 16;
constexpr char kDigits[] = "0123456789abcdef";

std::string to_hex(const std::string& bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string from_hex(const std::string& digits, const std::string& where) {
  const auto value = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    fail(Code::checkpoint, where, ": '", c, "' is no hexadecimal digit");
  };
  if (digits.size() % 2 != 0) fail(Code::checkpoint, where, ": an odd number of hexadecimal digits");
  std::string out;
  out.reserve(digits.size() / 2);
  for (std::size_t k = 0; k < digits.size(); k += 2)
    out += static_cast<char>(16 * value(digits[k]) + value(digits[k + 1]));
  return out;
}

// Text, because JSON has no NaN and no infinity.
double to_double(const std::string& text, const std::string& where) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size())
    fail(Code::checkpoint, where, ": '", text.substr(0, 40), "' is no number");
  return value;
}

ItemValue value_from_json(const Json& json, const std::string& where) {
  if (json.contains("int")) {
    const Json& value = member(json, "int", where);
    if (!value.is_number_integer()) fail(Code::checkpoint, where, ": 'int' is no integer");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      fail(Code::checkpoint, where, ": 'int' is too large");
    return value.get<std::int64_t>();
  }
  if (json.contains("float")) return to_double(text_of(json, "float", where), where);
  return text_of(json, "text", where);
}

}  // namespace

std::string read_text(Folder& folder, const std::string& name, std::uint64_t most) {
  const std::unique_ptr<File> file = folder.open(name);
  if (file->size() > most)
    fail(Code::checkpoint, folder.path(), "/", name, ": ", file->size(), " bytes, more than the ", most, " allowed");
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Json parse_json(const std::string& text, const std::string& where) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) fail(Code::checkpoint, where, ": nested more than ", kDeepest, " deep");
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& bad) {
    // The parser's text may hold bytes of the file and line ends.
    fail(Code::checkpoint, where, ": is no valid JSON (error ", bad.id, ")");
  }
}

std::string json_text(const Json& json, const std::string& where) {
  try {
    return json.dump(1) + "\n";
  } catch (const Json::exception&) {
    fail(Code::checkpoint, where, ": a name or text is not UTF-8");
  }
}

const Json& member(const Json& json, const char* key, const std::string& where) {
  if (!json.is_object() || !json.contains(key)) fail(Code::checkpoint, where, ": '", key, "' is missing");
  return json[key];
}

std::string text_of(const Json& json, const char* key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_string()) fail(Code::checkpoint, where, ": '", key, "' is no text");
  return value.get<std::string>();
}

std::uint64_t count_of(const Json& json, const char* key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_number_unsigned()) fail(Code::checkpoint, where, ": '", key, "' is no count");
  return value.get<std::uint64_t>();
}

const std::vector<Json>& array_of(const Json& json, const char* key, const std::string& where) {
  const Json& value = member(json, key, where);
  if (!value.is_array()) fail(Code::checkpoint, where, ": '", key, "' is no list");
  return value.get_ref<const std::vector<Json>&>();
}

Json item_to_json(const Item& item) {
  Json out{{"kind", static_cast<std::uint32_t>(item.kind)},
           {"role", static_cast<std::uint32_t>(item.role)},
           {"name", item.name},
           {"key", item.key}};
  if (item.kind == ItemKind::tensor) {
    out["dtype"] = dtype_name(item.dtype);
    out["shape"] = item.shape;
    if (!item.alias_of.empty()) out["alias_of"] = item.alias_of;
    return out;
  }
  if (item.kind == ItemKind::bytes) {
    out["bytes"] = to_hex(std::get<std::string>(item.value));
  } else if (const auto* integer = std::get_if<std::int64_t>(&item.value)) {
    out["int"] = *integer;
  } else if (const auto* number = std::get_if<double>(&item.value)) {
    out["float"] = exact(*number);
  } else {
    out["text"] = std::get<std::string>(item.value);
  }
  return out;
}

Item item_from_json(const Json& json, const std::string& where) {
  const std::uint64_t kind = count_of(json, "kind", where), role = count_of(json, "role", where);
  if (kind < 1 || kind > 3) fail(Code::checkpoint, where, ": unknown kind ", kind);
  if (role < 1 || role > 5) fail(Code::checkpoint, where, ": unknown role ", role);
  Item item;
  item.kind = static_cast<ItemKind>(kind);
  item.role = static_cast<ItemRole>(role);
  item.name = text_of(json, "name", where);
  item.key = text_of(json, "key", where);
  if (item.kind == ItemKind::tensor) {
    item.dtype = dtype_of_name(text_of(json, "dtype", where), where);
    for (const Json& dim : array_of(json, "shape", where)) {
      if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
        fail(Code::checkpoint, where, ": 'shape' holds something that is no size");
      item.shape.push_back(dim.get<std::int64_t>());
    }
    if (json.contains("alias_of")) item.alias_of = text_of(json, "alias_of", where);
  } else if (item.kind == ItemKind::bytes) {
    std::string bytes = from_hex(text_of(json, "bytes", where), where);
    item.dtype = at::kByte;
    item.shape = {static_cast<std::int64_t>(bytes.size())};
    item.value = std::move(bytes);
  } else {
    item.value = value_from_json(json, where);
  }
  return item;
}

}  // namespace shale

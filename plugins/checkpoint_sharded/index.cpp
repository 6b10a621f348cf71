#include "index.h"

#include <cstdlib>
#include <limits>
#include <map>
#include <tuple>

using shale::sdk::Error;
using shale::sdk::str;
using shale::sdk::view;

namespace sharded {
namespace {

constexpr int kDeepest = 8;
constexpr std::uint64_t kVersion = 1;
constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

[[noreturn]] void corrupt(const std::string& what) { throw Error(SHALE_CORRUPT, kIndexFile, what); }

const Json& member(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key)) corrupt(std::string("'") + key + "' is missing");
  return json[key];
}

std::uint64_t count(const Json& value, std::uint64_t most, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) corrupt(std::string(what) + " is out of range");
  return value.get<std::uint64_t>();
}

const std::string& text(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_string()) corrupt(std::string("'") + key + "' is no text");
  return value.get_ref<const std::string&>();
}

const std::vector<Json>& list(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (!value.is_array()) corrupt(std::string("'") + key + "' is no list");
  return value.get_ref<const std::vector<Json>&>();
}

std::uint32_t dims(const Json& json, const char* key, std::int64_t* out) {
  const std::vector<Json>& values = list(json, key);
  if (values.size() > SHALE_MAX_DIMS) corrupt(std::string("'") + key + "' has more than 8 dimensions");
  for (const Json& value : values) *out++ = static_cast<std::int64_t>(count(value, kMost, key));
  return static_cast<std::uint32_t>(values.size());
}

shale_value value_of(const Json& json) {
  shale_value value{};
  value.is_set = 1;
  if (json.contains("int")) {
    const Json& integer = json["int"];
    if (!integer.is_number_integer() || (integer.is_number_unsigned() && integer.get<std::uint64_t>() > kMost))
      corrupt("'int' is out of range");
    value.type = SHALE_OPT_INT;
    value.i = integer.get<std::int64_t>();
  } else if (json.contains("float")) {
    const std::string& digits = text(json, "float");
    char* end = nullptr;
    value.type = SHALE_OPT_FLOAT;
    value.f = std::strtod(digits.c_str(), &end);
    if (digits.empty() || end != digits.c_str() + digits.size()) corrupt("'float' is no number");
  } else {
    value.type = SHALE_OPT_TEXT;
    value.s = str(text(json, "text"));
  }
  return value;
}

std::uint32_t dtype_of(const std::string& name) {
  for (const Dtype& known : kDtypes)
    if (name == known.name) return known.dtype;
  corrupt("unknown dtype");
}

// Everything but boxes; `value` must outlive the item.
shale_item item_of(const Json& json, shale_value& value) {
  SHALE_VAR(shale_item, item);
  const std::string& kind = text(json, "kind");
  item.role = static_cast<std::uint32_t>(count(member(json, "role"), 5, "'role'"));
  item.name = str(text(json, "name"));
  item.key = str(text(json, "key"));
  if (kind == "value") {
    item.kind = SHALE_ITEM_VALUE;
    value = value_of(json);
    item.value = &value;
    return item;
  }
  if (kind != "tensor" && kind != "bytes") corrupt("unknown kind of item");
  item.kind = kind == "tensor" ? SHALE_ITEM_TENSOR : SHALE_ITEM_BYTES;
  item.dtype = dtype_of(text(json, "dtype"));
  item.ndim = dims(json, "shape", item.shape);
  if (json.contains("alias_of")) item.alias_of = str(text(json, "alias_of"));
  return item;
}

void add_boxes(const Files& files, const shale_index& index, const std::vector<Json>& names, const Json& json,
               std::uint32_t item) {
  for (const Json& stored : list(json, "boxes")) {
    SHALE_VAR(shale_box, box);
    box.ndim = dims(stored, "begin", box.begin);
    if (dims(stored, "extent", box.extent) != box.ndim) corrupt("'begin' and 'extent' differ in length");
    const std::uint64_t file = count(member(stored, "file"), kMost, "'file'");
    if (file >= names.size()) corrupt("'file' is out of range");
    const std::uint64_t offset = count(member(stored, "offset"), kMost, "'offset'");
    files.plugin.ok(index.add_raw(index.ctx, item, &box, str(text(names[file], "name")), offset));
  }
}

Json parse(const std::string& bytes) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) corrupt("is nested too deep");
    return true;
  };
  try {
    return Json::parse(bytes, shallow);
  } catch (const Json::exception& bad) {  // its text may quote the file
    corrupt("is no valid JSON (error " + std::to_string(bad.id) + ")");
  }
}

// A file that belongs to another step or place has another header, though its size may be the same.
void check_headers(const Files& files, const std::vector<Json>& names) {
  for (const Json& file : names) {
    const std::string& name = text(file, "name");
    const bool plain =
        name.find_first_of(std::string_view("/\0", 2)) == std::string::npos && name != "." && name != "..";
    if (!plain || name.empty() || name.size() > 255) corrupt("a file whose name is no plain file name");
    if (files.header_fnv(name) != count(member(file, "header"), ~std::uint64_t{0}, "'header'"))
      throw Error(SHALE_CORRUPT, name, "its header is not the one that the index was written for");
  }
}

}  // namespace

const char* dtype_name(std::uint32_t dtype) {
  for (const Dtype& known : kDtypes)
    if (dtype == known.dtype) return known.name;
  throw Error(SHALE_UNSUPPORTED, "dtype", "this format cannot hold dtype " + std::to_string(dtype));
}

std::uint64_t fnv(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

Json item_json(const shale_item& item) {
  static constexpr const char* kKinds[] = {"", "tensor", "bytes", "value"};
  Json out{{"kind", kKinds[item.kind]}, {"role", item.role}, {"name", view(item.name)}, {"key", view(item.key)}};
  if (item.kind == SHALE_ITEM_VALUE) {
    const shale_value& value = *item.value;
    if (value.type == SHALE_OPT_TEXT) {
      out["text"] = view(value.s);
    } else if (value.type == SHALE_OPT_FLOAT) {  // text, because JSON has no NaN and no infinity
      char digits[40];
      std::snprintf(digits, sizeof digits, "%.17g", value.f);
      out["float"] = digits;
    } else {
      out["int"] = value.i;
    }
    return out;
  }
  out["dtype"] = dtype_name(item.dtype);
  out["shape"] = std::vector(item.shape, item.shape + item.ndim);
  if (item.alias_of.len > 0) out["alias_of"] = view(item.alias_of);
  return out;
}

std::string merge(const shale_finish& all) {
  Json files = Json::array();
  std::map<std::tuple<std::uint32_t, std::string, std::string>, Json> items;
  for (std::uint32_t part = 0; part < all.n_reports; ++part) {
    Json report = parse(std::string(view(all.reports[part])));
    files.push_back({{"name", report.at("file")}, {"header", report.at("header")}});
    for (Json& entry : report.at("entries")) {
      Json box{{"file", part}};
      for (const char* key : {"offset", "begin", "extent"}) {
        if (entry.contains(key)) box[key] = std::move(entry[key]);
        entry.erase(key);
      }
      const auto key = std::tuple(entry.at("role").get<std::uint32_t>(), entry.at("name").get<std::string>(),
                                  entry.at("key").get<std::string>());
      Json& item = items.emplace(key, std::move(entry)).first->second;
      if (item.at("kind") != "value" && !item.contains("boxes")) item["boxes"] = Json::array();
      if (box.size() > 1) item["boxes"].push_back(std::move(box));
    }
  }
  std::string out = "{\"format\": \"shale.sharded\", \"version\": " + std::to_string(kVersion) +
                    ", \"step\": " + std::to_string(all.step) + ",\n\"files\": " + files.dump() + ",\n\"items\": [";
  const char* separator = "\n";
  for (const auto& [key, item] : items) {
    out += separator + item.dump();
    separator = ",\n";
  }
  return out + "\n]}\n";
}

std::string Files::text(const char* name, std::uint64_t most) const {
  shale_file* file = nullptr;
  std::uint64_t size = 0;
  plugin.ok(table.open(table.ctx, folder, str(name), &file, &size));
  if (size > most) throw Error(SHALE_CORRUPT, name, std::to_string(size) + " bytes are too many");
  std::string out(size, '\0');
  plugin.ok(table.read(table.ctx, file, 0, out.data(), size));
  plugin.ok(table.close(table.ctx, file));
  return out;
}

std::uint64_t Files::header_fnv(const std::string& name) const {
  shale_file* file = nullptr;
  std::uint64_t size = 0, length = 0;
  unsigned char digits[8];
  plugin.ok(table.open(table.ctx, folder, str(name), &file, &size));
  plugin.ok(table.read(table.ctx, file, 0, digits, sizeof digits));
  for (std::size_t k = 8; k-- > 0;) length = length << 8 | digits[k];
  if (length > kLargestHeader || length > size - sizeof digits)
    throw Error(SHALE_CORRUPT, name, "a header of " + std::to_string(length) + " bytes in " + std::to_string(size));
  std::string header(sizeof digits + length, '\0');
  plugin.ok(table.read(table.ctx, file, 0, header.data(), header.size()));
  plugin.ok(table.close(table.ctx, file));
  return fnv(header);
}

void describe(const Files& files, const shale_index& index) {
  const Json json = parse(files.text(kIndexFile, kLargestIndex));
  if (sharded::text(json, "format") != "shale.sharded") corrupt("is no index of this format");
  if (count(member(json, "version"), kMost, "'version'") != kVersion)
    corrupt("a version that this plugin does not read");
  const std::vector<Json>& names = list(json, "files");
  check_headers(files, names);
  for (const Json& entry : list(json, "items")) {
    shale_value value{};
    const shale_item item = item_of(entry, value);
    std::uint32_t id = 0;
    files.plugin.ok(index.add_item(index.ctx, &item, &id));
    if (item.kind != SHALE_ITEM_VALUE) add_boxes(files, index, names, entry, id);
  }
}

}  // namespace sharded

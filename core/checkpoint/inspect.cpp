#include "core/checkpoint/inspect.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/posix.h"
#include "core/checkpoint/snapshot.h"

namespace shale {
namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string shape_text(const Item& item) {
  std::vector<std::string> dims;
  for (const std::int64_t dim : item.shape) dims.push_back(std::to_string(dim));
  return "[" + join(dims, ", ") + "]";
}

std::uint64_t bytes_of(const Item& item) {
  if (item.kind == ItemKind::value || !item.alias_of.empty()) return 0;
  return static_cast<std::uint64_t>(whole(item.shape).numel()) * c10::elementSize(item.dtype);
}

std::string value_text(const ItemValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return exact(*number);
  return "\"" + printable(std::get<std::string>(value)) + "\"";
}

std::string item_text(const Item& item) {
  if (item.kind == ItemKind::value) return padded("value", 10) + value_text(item.value);
  if (item.kind == ItemKind::bytes) return padded("bytes", 10) + human_bytes(static_cast<double>(bytes_of(item)));
  const std::string about = padded(dtype_name(item.dtype), 10) + padded(shape_text(item), 18);
  return about + (item.alias_of.empty() ? human_bytes(static_cast<double>(bytes_of(item))) : "= " + item.alias_of);
}

}  // namespace

std::string inspect_snapshot(const std::string& path, CheckpointFormat& format) {
  const auto reader = SnapshotReader::open(path, format);
  const Manifest manifest = read_manifest(*Folder::for_reading(path));
  std::string out = str("snapshot  ", path, "\nstep      ", manifest.step, "\nsaved by  ", manifest.world,
                        manifest.world == 1 ? " rank" : " ranks", "\nformat    ", manifest.format, "\n");
  for (const std::string& plugin : manifest.plugins) out += "plugin    " + printable(plugin) + "\n";
  for (const FileEntry& file : manifest.files)
    out += str("file      ", padded(printable(file.name), 40), " ", human_bytes(static_cast<double>(file.bytes)), "\n");
  std::size_t widest = 0;
  for (const Item& item : reader->items()) widest = std::max(widest, std::min<std::size_t>(item.id().size(), 60));
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> totals;
  std::uint64_t all = 0;
  for (const Item& item : reader->items()) {
    const std::string id = item.id();
    out += "  " + padded(id, widest) + "  " + item_text(item) + "\n";
    auto& [count, bytes] = totals[id.substr(0, id.find('/'))];
    ++count;
    bytes += bytes_of(item);
    all += bytes_of(item);
  }
  for (const auto& [role, total] : totals)
    out += str(padded(role, 10), total.first, " items, ", human_bytes(static_cast<double>(total.second)), "\n");
  return out +
         str(padded("total", 10), reader->items().size(), " items, ", human_bytes(static_cast<double>(all)), "\n");
}

}  // namespace shale

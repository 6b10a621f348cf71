#include "core/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/json.h"

namespace shale {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr char kStep[] = "step-", kSaving[] = ".saving-", kDeleting[] = ".deleting-";

std::string numbered(const char* prefix, std::uint64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return prefix + digits;
}

std::optional<std::uint64_t> number_after(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  // Exactly our spelling: "step-100", "step-00000100.tmp" and "step-000000100" are somebody else's.
  if (error != std::errc{} || stop != end || numbered(prefix.c_str(), step) != name) return std::nullopt;
  return step;
}

// The checksum covers the text of everything but itself; nlohmann sorts keys, so the text is always the same.
std::string signature(Json json, const std::string& where) {
  json.erase("checksum");
  return hash_text(json_text(json, where));
}

FileEntry entry_from_json(const Json& json, const std::string& where) {
  FileEntry entry{text_of(json, "name", where), count_of(json, "bytes", where), text_of(json, "hash", where)};
  if (entry.name.find('/') != std::string::npos) fail(Code::checkpoint, where, ": a file name holds '/'");
  return entry;
}

}  // namespace

const FileEntry* Manifest::find(const std::string& name) const {
  const auto at = std::ranges::lower_bound(files, name, {}, &FileEntry::name);
  return at != files.end() && at->name == name ? &*at : nullptr;
}

void write_manifest(Folder& folder, const Manifest& manifest) {
  const std::string where = folder.path() + "/" + kManifestFile;
  Json files = Json::array();
  for (const FileEntry& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}});
  Json json{{"manifest", kVersion},     {"format", manifest.format},   {"step", manifest.step},
            {"world", manifest.world},  {"plugins", manifest.plugins}, {"hash", "xxh3-128"},
            {"files", std::move(files)}};
  json["checksum"] = signature(json, where);
  const std::string text = json_text(json, where);
  folder.create(kManifestFile)->append(std::as_bytes(std::span(text)));
}

Manifest read_manifest(Folder& folder) {
  const std::string where = folder.path() + "/" + kManifestFile;
  const Json json = parse_json(read_text(folder, kManifestFile, kLargestText), where);
  const std::string signed_as = text_of(json, "checksum", where);
  if (signed_as != signature(json, where))
    fail(Code::checkpoint, where, ": the checksum does not fit the text; the file was damaged or edited");
  const std::uint64_t version = count_of(json, "manifest", where);
  if (version != kVersion)
    fail(Code::checkpoint, where, ": manifest version ", version, ", this shale reads ", kVersion,
         "; use a newer shale");
  Manifest out{text_of(json, "format", where), count_of(json, "step", where), 1, {}, {}};
  const std::uint64_t world = count_of(json, "world", where);
  if (world < 1 || world > 1 << 30) fail(Code::checkpoint, where, ": a world of ", world, " ranks");
  out.world = static_cast<int>(world);
  for (const Json& plugin : array_of(json, "plugins", where)) {
    if (!plugin.is_string()) fail(Code::checkpoint, where, ": 'plugins' holds something that is no text");
    out.plugins.push_back(plugin.get<std::string>());
  }
  for (const Json& file : array_of(json, "files", where)) out.files.push_back(entry_from_json(file, where));
  std::ranges::sort(out.files, {}, &FileEntry::name);
  if (std::ranges::adjacent_find(out.files, {}, &FileEntry::name) != out.files.end())
    fail(Code::checkpoint, where, ": a file is listed twice");
  return out;
}

std::string missing_files(Folder& folder, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    try {
      const std::uint64_t size = folder.open(file.name)->size();
      if (size != file.bytes)
        return str(folder.path(), "/", file.name, ": ", size, " bytes, the manifest says ", file.bytes);
    } catch (const Error& bad) {
      return bad.what();
    }
  }
  return "";
}

std::string step_name(std::uint64_t step) { return numbered(kStep, step); }
std::string saving_name(std::uint64_t step) { return numbered(kSaving, step); }
std::string deleting_name(std::uint64_t step) { return numbered(kDeleting, step); }
std::optional<std::uint64_t> step_of_name(const std::string& name) { return number_after(name, kStep); }

bool is_left_over(const std::string& name) {
  return number_after(name, kSaving).has_value() || number_after(name, kDeleting).has_value();
}

}  // namespace shale

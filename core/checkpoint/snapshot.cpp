#include "core/checkpoint/snapshot.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/posix.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

bool is_complete(const std::string& path, std::uint64_t step) {
  try {
    const auto folder = Folder::for_reading(path);
    const Manifest manifest = read_manifest(*folder);
    return manifest.step == step && missing_files(*folder, manifest).empty();
  } catch (const Error&) {
    return false;
  }
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code bad;
  return fs::equivalent(a, b, bad) && !bad;
}

std::string hash_of(File& file) {
  constexpr std::uint64_t kPiece = 4 << 20;
  std::vector<std::byte> buffer(std::min(kPiece, file.size()));
  Hasher hasher;
  for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file.size() - at));
    file.read(at, piece);
    hasher.add(piece.data(), piece.size());
  }
  return hasher.hex();
}

}  // namespace

std::vector<SnapshotName> list_snapshots(const std::string& root) {
  std::vector<SnapshotName> out;
  if (!fs::is_directory(root)) return out;
  for (const std::string& name : Folder::for_reading(root)->list()) {
    const std::optional<std::uint64_t> step = step_of_name(name);
    const std::string path = root + "/" + name;
    if (step && is_complete(path, *step)) out.push_back({*step, path});
  }
  std::ranges::sort(out, {}, &SnapshotName::step);  // as numbers: names of more than 8 digits sort otherwise
  return out;
}

void retain(const std::string& root, int keep, const std::string& protect) {
  check(keep >= 1, "at least one snapshot is kept, not ", keep);
  std::vector<SnapshotName> all = list_snapshots(root);
  for (std::size_t k = 0; k + static_cast<std::size_t>(keep) < all.size(); ++k) {
    if (!protect.empty() && same_folder(all[k].path, protect)) continue;
    // The rename takes it off the list at once, so a half-deleted one is never taken for a snapshot.
    const std::string victim = root + "/" + deleting_name(all[k].step);
    std::error_code bad;
    fs::remove_all(victim, bad);
    rename_new(all[k].path, victim);
    sync_folder(root);
    fs::remove_all(victim, bad);
    if (bad) fail(Code::io, victim, ": cannot be removed: ", bad.message());
  }
}

std::string format_of(const std::string& path) {
  const auto folder = Folder::for_reading(path);
  for (const std::string& name : folder->list())
    if (name == kManifestFile) return read_manifest(*folder).format;
  return "";
}

std::vector<std::string> verify_snapshot(const std::string& path) {
  const auto folder = Folder::for_reading(path);
  std::vector<std::string> out;
  for (const FileEntry& entry : read_manifest(*folder).files) {
    try {
      const std::unique_ptr<File> file = folder->open(entry.name);
      if (file->size() != entry.bytes)
        out.push_back(str(path, "/", entry.name, ": ", file->size(), " bytes, the manifest says ", entry.bytes));
      else if (hash_of(*file) != entry.hash)
        out.push_back(str(path, "/", entry.name, ": the bytes were changed after the snapshot was written"));
    } catch (const Error& bad) {
      out.push_back(bad.what());
    }
  }
  return out;
}

}  // namespace shale

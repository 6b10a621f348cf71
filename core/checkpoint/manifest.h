// The manifest of a snapshot: which format wrote it, at which step, and every file with size and checksum. Its own text
// is signed by a checksum, so a damaged manifest is never half believed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/folder.h"

namespace shale {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kRunFile[] = "run.json";      // items that the format cannot hold
inline constexpr char kModelFile[] = "model.json";  // the model in config.json spelling
inline constexpr char kConfigFile[] = "config.toml";
inline constexpr std::uint64_t kLargestText = std::uint64_t{1} << 30;  // of a JSON file of ours

struct Manifest {
  std::string format;
  std::uint64_t step = 0;
  int world = 1;
  std::vector<std::string> plugins;
  std::vector<FileEntry> files;  // sorted by name, without the manifest itself

  const FileEntry* find(const std::string& name) const;
};

void write_manifest(Folder&, const Manifest&);
// Error{checkpoint} naming the file when it is missing, damaged or written by a newer shale.
Manifest read_manifest(Folder&);
// Every file is there with its size; "" or one line that says what is not.
std::string missing_files(Folder&, const Manifest&);

// step-00000100 and its temporary names, which never hold "step-" and digits.
std::string step_name(std::uint64_t step);
std::string saving_name(std::uint64_t step);
std::string deleting_name(std::uint64_t step);
std::optional<std::uint64_t> step_of_name(const std::string& name);
bool is_left_over(const std::string& name);  // of a save or deletion that did not end

}  // namespace shale

// The files of one snapshot folder, by relative name. Hashes while writing, syncs before the commit, checks bounds
// while reading; errors name path and errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shale {

// One open file. Closed by its destructor; write errors at close are reported by Folder::sync.
class File {
 public:
  virtual ~File() = default;
  virtual std::uint64_t size() const = 0;
  virtual void append(std::span<const std::byte>) = 0;                              // writing
  virtual void read(std::uint64_t offset, std::span<std::byte> to) = 0;             // all of it or Error{checkpoint}
};

struct FileEntry {  // a line of the manifest
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;  // XXH3-128, hex
};

class Folder {
 public:
  static std::unique_ptr<Folder> for_writing(const std::string& path);  // must exist and be ours
  static std::unique_ptr<Folder> for_reading(const std::string& path);
  virtual ~Folder() = default;
  virtual const std::string& path() const = 0;
  virtual std::unique_ptr<File> create(const std::string& name) = 0;  // must not exist; no "..", no absolute names
  virtual std::unique_ptr<File> open(const std::string& name) = 0;    // read only
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual std::vector<std::string> list() = 0;                        // sorted relative names
  virtual std::vector<FileEntry> sync() = 0;  // fsync of files written here and of the folder; what was written
};

}  // namespace shale

// The files of one snapshot folder, by relative name. Hashes while writing, syncs before the commit, checks bounds
// while reading; errors name path and errno.
#pragma once

#include <cstddef>
#include <cstdint>
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
  // Writing: how long the file will be. A hint that makes it several times quicker and finds a full disk early.
  virtual void reserve(std::uint64_t) {}
  virtual void append(std::span<const std::byte>) = 0;                   // writing; Error{io}
  virtual void read(std::uint64_t offset, std::span<std::byte> to) = 0;  // all of it or Error{checkpoint}
};

struct FileEntry {  // a line of the manifest
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;  // XXH3-128, hex
};

// Names are plain file names: no '/', not "." or "..". A folder is used by one thread at a time, its open files by
// one thread each.
class Folder {
 public:
  static std::unique_ptr<Folder> for_writing(const std::string& path);  // must exist and be ours
  static std::unique_ptr<Folder> for_reading(const std::string& path);  // Error{checkpoint} when it is not there
  virtual ~Folder() = default;
  virtual const std::string& path() const = 0;
  virtual std::unique_ptr<File> create(const std::string& name) = 0;  // must not exist
  virtual std::unique_ptr<File> open(const std::string& name) = 0;    // read only
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual std::vector<std::string> list() = 0;  // sorted relative names
  // What other ranks wrote into this folder: from now on part of what sync returns, and followed by rename.
  virtual void adopt(std::span<const FileEntry>) {}
  virtual std::vector<FileEntry> sync() = 0;  // fsync of files written here and of the folder; what was written
};

}  // namespace shale

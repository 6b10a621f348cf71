#include "core/checkpoint/folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/posix.h"

namespace shale {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;  // smaller appends are collected
constexpr std::size_t kPieceBytes = 4 << 20;   // hashed, then written while still in the cache
constexpr std::uint64_t kWritebackBytes = 64 << 20;

void check_name(const std::string& folder, const std::string& name) {
  const bool control = std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (name.empty() || name.size() > 255 || control || name.find('/') != std::string::npos || name == "." ||
      name == "..")
    fail(Code::checkpoint, folder, ": '", printable(name), "' is no plain file name");
}

// A file written here. Lives in its folder until sync, after its File is gone, so that nothing is left unsynced.
struct Written {
  std::string path;
  FileEntry entry;
  FileDescriptor descriptor;
  Hasher hasher;
  std::vector<std::byte> buffer;
  std::uint64_t reserved = 0, started = 0;  // started: bytes whose way to the disk has begun
  bool failed = false;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      hasher.add(piece.data(), piece.size());
      write_all(descriptor.get(), piece, path);
      entry.bytes += piece.size();
      bytes = bytes.subspan(piece.size());
      start_writeback();
    }
  }

  // The disk works while the next pieces are hashed, so the fsync at the end has little left to do.
  void start_writeback() {
    if (entry.bytes - started < kWritebackBytes) return;
    ::sync_file_range(descriptor.get(), static_cast<off_t>(started), static_cast<off_t>(entry.bytes - started),
                      SYNC_FILE_RANGE_WRITE);
    started = entry.bytes;
  }

  void flush() {
    const std::vector<std::byte> bytes = std::exchange(buffer, {});
    write(bytes);
  }

  void append(std::span<const std::byte> bytes) {
    if (failed) fail(Code::io, path, ": an earlier write failed");
    failed = true;  // until it went well
    if (buffer.size() + bytes.size() >= kBufferBytes) {
      flush();
      write(bytes);
    } else {
      buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    }
    failed = false;
  }

  void reserve(std::uint64_t bytes) {
    if (bytes <= reserved || bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return;
    const int error = ::posix_fallocate(descriptor.get(), 0, static_cast<off_t>(bytes));
    if (error == 0) reserved = bytes;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
      failed = true;
      fail(Code::io, path, ": no room for ", bytes, " bytes: ", std::strerror(error),
           "; free space or choose another "
           "folder");
    }
  }

  FileEntry finish() {
    if (failed) fail(Code::io, path, ": an earlier write failed");
    if (descriptor.get() < 0) return entry;
    flush();
    if (reserved > entry.bytes && ::ftruncate(descriptor.get(), static_cast<off_t>(entry.bytes)) != 0)
      fail_io(path, "cannot be cut to its length");
    sync_descriptor(descriptor.get(), path);
    descriptor.close(path);
    entry.hash = hasher.hex();
    return entry;
  }
};

class WritingFile final : public File {
 public:
  explicit WritingFile(Written& file) : file_(file) {}
  std::uint64_t size() const override { return file_.entry.bytes + file_.buffer.size(); }
  void reserve(std::uint64_t bytes) override { file_.reserve(bytes); }
  void append(std::span<const std::byte> bytes) override { file_.append(bytes); }
  void read(std::uint64_t, std::span<std::byte>) override { check(false, file_.path, " is open for writing"); }

 private:
  Written& file_;
};

class ReadingFile final : public File {
 public:
  explicit ReadingFile(std::string path, FileDescriptor descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  void append(std::span<const std::byte>) override { check(false, path_, " is open for reading"); }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    if (offset > size_ || to.size() > size_ - offset)
      fail(Code::checkpoint, path_, ": ", to.size(), " bytes at ", offset, " lie outside the file of ", size_,
           " bytes");
    read_all(descriptor_.get(), offset, to, path_);
  }

 private:
  std::string path_;
  FileDescriptor descriptor_;
  std::uint64_t size_;
};

class PosixFolder final : public Folder {
 public:
  PosixFolder(std::string path, bool writing) : path_(std::move(path)), writing_(writing) {
    descriptor_ =
        FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (writing ? O_NOFOLLOW : 0)));
    if (descriptor_.get() >= 0) return;
    if (writing) fail_io(path_, "cannot be opened for writing");
    fail(Code::checkpoint, path_, ": cannot be opened: ", std::strerror(errno));
  }

  const std::string& path() const override { return path_; }

  std::unique_ptr<File> create(const std::string& name) override {
    check(writing_, path_, " is open for reading");
    check_name(path_, name);
    const std::string path = path_ + "/" + name;
    FileDescriptor made(
        ::openat(descriptor_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (made.get() < 0) fail_io(path, "cannot be created");
    written_.push_back({path, {name, 0, ""}, std::move(made), {}, {}});
    return std::make_unique<WritingFile>(written_.back());
  }

  std::unique_ptr<File> open(const std::string& name) override {
    check_name(path_, name);
    const std::string path = path_ + "/" + name;
    // O_NONBLOCK: a fifo of that name must not hang us.
    FileDescriptor file(::openat(descriptor_.get(), name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0) fail(Code::checkpoint, path, ": cannot be opened: ", std::strerror(errno));
    struct stat about {};
    if (::fstat(file.get(), &about) != 0) fail_io(path, "cannot be examined");
    if (!S_ISREG(about.st_mode)) fail(Code::checkpoint, path, ": is no regular file");
    return std::make_unique<ReadingFile>(path, std::move(file), static_cast<std::uint64_t>(about.st_size));
  }

  void rename(const std::string& from, const std::string& to) override {
    check(writing_, path_, " is open for reading");
    check_name(path_, from);
    check_name(path_, to);
    if (::faccessat(descriptor_.get(), to.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
      fail(Code::io, path_, "/", to, ": exists, ", from, " cannot take its name");
    if (::renameat(descriptor_.get(), from.c_str(), descriptor_.get(), to.c_str()) != 0)
      fail_io(path_ + "/" + from, "cannot be renamed to " + to);
    for (Written& file : written_)
      if (file.entry.name == from) file.entry.name = to, file.path = path_ + "/" + to;
    for (FileEntry& file : adopted_)
      if (file.name == from) file.name = to;
  }

  std::vector<std::string> list() override {
    const int copy = ::openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
    if (!dir) fail_io(path_, "cannot be listed");
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  void adopt(std::span<const FileEntry> files) override { adopted_.insert(adopted_.end(), files.begin(), files.end()); }

  std::vector<FileEntry> sync() override {
    std::vector<FileEntry> out = adopted_;
    for (Written& file : written_) out.push_back(file.finish());
    sync_descriptor(descriptor_.get(), path_);
    std::ranges::sort(out, {}, &FileEntry::name);
    return out;
  }

 private:
  std::string path_;
  bool writing_;
  FileDescriptor descriptor_;
  std::deque<Written> written_;  // addresses are kept by open files
  std::vector<FileEntry> adopted_;
};

}  // namespace

std::unique_ptr<Folder> Folder::for_writing(const std::string& path) {
  return std::make_unique<PosixFolder>(path, true);
}

std::unique_ptr<Folder> Folder::for_reading(const std::string& path) {
  return std::make_unique<PosixFolder>(path, false);
}

}  // namespace shale

// Thin wrappers over POSIX files for this room: descriptors with an owner, whole reads and writes, errors with path and
// reason. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace shale {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& from) noexcept {
    std::swap(fd_, from.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }
  void close(const std::string& path);  // Error{io}: a delayed write error may show here

 private:
  int fd_ = -1;
};

[[noreturn]] void fail_io(const std::string& path, const std::string& what);  // adds errno's text and advice
void write_all(int fd, std::span<const std::byte>, const std::string& path);
void read_all(int fd, std::uint64_t offset, std::span<std::byte> to, const std::string& path);
void sync_descriptor(int fd, const std::string& path);
void sync_folder(const std::string& path);
// Renames within one folder tree, never over something that is there. Error{io}.
void rename_new(const std::string& from, const std::string& to);
// Two folders change places at once; false where the file system cannot.
bool exchange(const std::string& a, const std::string& b);
std::string printable(const std::string& text);  // control characters become '?', long text is cut

}  // namespace shale

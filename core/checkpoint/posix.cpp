#include "core/checkpoint/posix.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/error.h"

namespace shale {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void FileDescriptor::close(const std::string& path) {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0) fail_io(path, "cannot be closed");
}

void fail_io(const std::string& path, const std::string& what) {
  const int error = errno;
  const char* advice = "";
  if (error == ENOSPC || error == EDQUOT) advice = "; free space or choose another folder";
  if (error == EACCES || error == EPERM || error == EROFS) advice = "; choose a folder that this user may write";
  if (error == EFBIG) advice = "; raise the file size limit (ulimit -f)";
  fail(Code::io, path, ": ", what, ": ", std::strerror(error), advice);
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) fail_io(path, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void read_all(int fd, std::uint64_t offset, std::span<std::byte> to, const std::string& path) {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path, "cannot be read");
    if (n == 0) fail(Code::checkpoint, path, ": became shorter while it was read");
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void sync_descriptor(int fd, const std::string& path) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    fail_io(path, "cannot be synced to the disk");
  }
}

void sync_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail_io(path, "cannot be opened");
  sync_descriptor(folder.get(), path);
}

void rename_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // Some network file systems know no flags. rename() itself never replaces a folder that has something in it.
  const bool no_flags = errno == EINVAL || errno == ENOSYS;
  if (no_flags && ::rename(from.c_str(), to.c_str()) == 0) return;
  fail_io(from, "cannot be renamed to " + to);
}

bool exchange(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail_io(a, "cannot change places with " + b);
  return false;
}

std::string printable(const std::string& text) {
  std::string out = text.substr(0, 80);
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > out.size() ? out + "..." : out;
}

}  // namespace shale

#include "core/model/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace shale {

InputFile::InputFile(const std::string& path) : path_(path) {
  // Without O_NONBLOCK the open of a pipe would wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(Code::input, path, ": cannot be opened: ", std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(descriptor_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    fail(Code::input, path, ": is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void InputFile::read(std::uint64_t offset, void* to, std::uint64_t n) const {
  constexpr std::uint64_t kAtOnce = 1u << 30;  // pread takes at most 2 GiB
  auto* place = static_cast<char*>(to);
  for (std::uint64_t done = 0; done < n;) {
    const auto got = ::pread(descriptor_, place + done, std::min(n - done, kAtOnce), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Code::io, path_, ": read failed at byte ", offset + done, ": ", std::strerror(errno));
    if (got == 0) {
      fail(Code::input, path_, ": ends at byte ", offset + done, " while ", n - done,
           " more are expected: it was cut after it was opened");
    }
    done += static_cast<std::uint64_t>(got);
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (size_ > limit) fail(Code::input, path_, ": ", size_, " bytes; at most ", limit, " are expected in such a file");
  std::string all(size_, '\0');
  read(0, all.data(), size_);
  return all;
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

const char* looks_like(std::string_view start) {
  if (start.starts_with("version https://git-lfs")) {
    return "; it is a Git LFS pointer: fetch the real file (git lfs pull)";
  }
  if (start.starts_with("<")) return "; it looks like a web page: the download went wrong";
  if (start.starts_with("PK") || start.starts_with("\x80\x02")) {
    return "; it looks like a PyTorch pickle: convert it to safetensors first";
  }
  return "";
}

}  // namespace shale

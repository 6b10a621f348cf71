#include "core/data/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

namespace shale {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // Non-blocking, so that a pipe without a writer is refused below instead of waited for.
  const Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(Code::input, path_, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  if (fstat(file.fd, &status) != 0) fail(Code::io, path_, ": cannot be read: ", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(Code::input, path_, ": is no regular file; give token files or a folder of them");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* at = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) fail(Code::io, path_, ": ", size_, " bytes cannot be mapped: ", std::strerror(errno));
  data_ = static_cast<const unsigned char*>(at);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<unsigned char*>(data_), size_);
}

}  // namespace shale

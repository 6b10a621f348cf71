// A file mapped read-only into memory. Private to this room.
#pragma once

#include <cstddef>
#include <string>

namespace shale {

class MappedFile {
 public:
  explicit MappedFile(std::string path);  // Error{input} when it is not there, Error{io} when it cannot be mapped
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }  // null when empty
  std::size_t size() const { return size_; }           // bytes

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shale

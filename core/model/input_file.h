// A file that is read but not trusted, by position and never by mapping: a file cut short while it is open gives an
// error instead of a signal. Any thread; a file may be read by several at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shale {

class InputFile {
 public:
  // Error{input} naming the path when it is not there, not readable, or not a regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, when it was opened

  // Bytes [offset, offset + n) into `to`; Error{input} when the file has become shorter, Error{io} when it fails.
  void read(std::uint64_t offset, void* to, std::uint64_t n) const;

  // All of it; Error{input} when it is larger than `limit` bytes.
  std::string text(std::uint64_t limit) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

bool file_exists(const std::string& path);

// For the end of a message: what a file with these first bytes may be instead of what was expected, and what to do, as
// "; it is a ..."; "" when nothing comes to mind.
const char* looks_like(std::string_view start);

}  // namespace shale

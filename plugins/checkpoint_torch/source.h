// Read-only bytes: a file of the folder, or a part of one. Nothing that is read from it is trusted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "shale/plugin.hpp"

namespace torch_file {

class Source {
 public:
  explicit Source(std::string name) : name_(std::move(name)) {}
  virtual ~Source() = default;
  const std::string& name() const { return name_; }
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, void* to, std::uint64_t n) = 0;  // all n or an Error

  std::string bytes(std::uint64_t offset, std::uint64_t n) {
    if (offset > size() || n > size() - offset) corrupt(offset, std::to_string(n) + " bytes reach past the end");
    std::string out(n, '\0');
    read(offset, out.data(), n);
    return out;
  }
  [[noreturn]] void corrupt(std::uint64_t offset, const std::string& what) const {
    throw shale::sdk::Error(SHALE_CORRUPT, name_, "byte " + std::to_string(offset) + ": " + what);
  }
  [[noreturn]] void corrupt(const std::string& what) const { throw shale::sdk::Error(SHALE_CORRUPT, name_, what); }
  [[noreturn]] void unsupported(const std::string& what) const {
    throw shale::sdk::Error(SHALE_UNSUPPORTED, name_, what);
  }

 private:
  std::string name_;
};

// A file as the host lends it.
class FileSource final : public Source {
 public:
  FileSource(const shale::sdk::Plugin& plugin, shale_folder* folder, const std::string& name)
      : Source(name), plugin_(plugin), table_(plugin.service<shale_files>(SHALE_FILES_SERVICE)) {
    plugin_.ok(table_.open(table_.ctx, folder, shale::sdk::str(name), &file_, &size_));
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override {
    if (shale_status* bad = table_.close(table_.ctx, file_)) plugin_.host->status_free(bad);
  }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, void* to, std::uint64_t n) override {
    if (n > 0) plugin_.ok(table_.read(table_.ctx, file_, offset, to, n));
  }

 private:
  const shale::sdk::Plugin& plugin_;
  const shale_files& table_;
  shale_file* file_ = nullptr;
  std::uint64_t size_ = 0;
};

// Text out of a file as a message may show it: short, one line, no control characters.
inline std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out(text.substr(0, kLongest));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return "'" + out + (text.size() > kLongest ? "...'" : "'");
}

// An unsigned little-endian number of `width` bytes.
inline std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t out = 0;
  for (std::size_t k = width; k-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[at + k]);
  return out;
}

}  // namespace torch_file

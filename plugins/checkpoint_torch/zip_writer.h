// Writes a zip file from front to back, as torch.save does: stored records whose data is aligned to 64 bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace torch_file {

class ZipWriter {
 public:
  using Sink = std::function<void(const void*, std::uint64_t)>;
  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // `data` gives the bytes when the record's turn has come; without it the position moves on and nothing is written.
  void add(const std::string& name, std::uint64_t bytes, const std::function<const void*()>& data);
  void finish();                                  // the directory
  std::uint64_t position() const { return at_; }  // after finish: the length of the file

 private:
  struct Entry {
    std::string name;
    std::uint64_t bytes, header;
    std::uint32_t crc;
  };
  void put(std::string_view);

  Sink sink_;
  std::uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

std::uint32_t crc32(const void*, std::uint64_t n);

}  // namespace torch_file

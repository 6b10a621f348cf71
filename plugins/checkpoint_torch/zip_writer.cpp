#include "zip_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace torch_file {
namespace {

constexpr std::uint64_t kFull16 = 0xffff, kFull32 = 0xffffffff, kAlignment = 64;
constexpr unsigned kSizesFollow = 8, kUtf8 = 0x800;

// tables[k][b]: the checksum of byte b with k zero bytes behind it.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> out{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    out[0][byte] = crc;
  }
  for (std::size_t k = 1; k < out.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      out[k][byte] = out[k - 1][byte] >> 8 ^ out[0][out[k - 1][byte] & 255];
  return out;
}();

class Fields {
 public:
  explicit Fields(std::string_view signature) : text(signature) {}
  Fields& add(std::size_t width, std::uint64_t value) {
    for (std::size_t k = 0; k < width; ++k) text += static_cast<char>(value >> (8 * k));
    return *this;
  }
  Fields& narrow(std::uint64_t value) { return add(4, std::min(value, kFull32)); }
  std::string text;
};

}  // namespace

std::uint32_t crc32(const void* data, std::uint64_t n) {
  const auto* byte = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~std::uint32_t{0};
  for (; n >= 8; n -= 8, byte += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, byte, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 255];
  }
  for (; n > 0; --n, ++byte) crc = crc >> 8 ^ kTables[0][(crc ^ *byte) & 255];
  return ~crc;
}

void ZipWriter::put(std::string_view bytes) {
  sink_(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::uint64_t bytes, const std::function<const void*()>& data) {
  constexpr std::uint64_t kHeader = 30, kExtra = 4;
  const bool wide = bytes >= kFull32;
  Fields extra("");
  if (wide) extra.add(2, 1).add(2, 16).add(8, 0).add(8, 0);
  const std::uint64_t begin = at_ + kHeader + name.size() + extra.text.size() + kExtra;
  const std::uint64_t padding = (kAlignment - begin % kAlignment) % kAlignment;
  extra.text += "FB";
  extra.add(2, padding).text.append(padding, 'Z');
  Fields head(std::string_view("PK\3\4", 4));
  head.add(2, wide ? 45 : 20).add(2, kSizesFollow | kUtf8).add(2, 0).add(4, 0).add(4, 0);
  head.add(4, wide ? kFull32 : 0).add(4, wide ? kFull32 : 0).add(2, name.size()).add(2, extra.text.size());
  Entry entry{name, bytes, at_, 0};
  put(head.text + name + extra.text);
  if (data) {
    const void* from = data();
    entry.crc = crc32(from, bytes);
    sink_(from, bytes);
  }
  at_ += bytes;
  Fields behind(std::string_view("PK\7\x08", 4));
  put(behind.add(4, entry.crc).add(wide ? 8 : 4, bytes).add(wide ? 8 : 4, bytes).text);
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const std::uint64_t begin = at_;
  for (const Entry& entry : entries_) {
    Fields wide("");
    if (entry.bytes >= kFull32) wide.add(8, entry.bytes).add(8, entry.bytes);
    if (entry.header >= kFull32) wide.add(8, entry.header);
    const bool any = !wide.text.empty();
    Fields extra("");
    if (any) extra.add(2, 1).add(2, wide.text.size()).text += wide.text;
    Fields head(std::string_view("PK\1\2", 4));
    head.add(2, any ? 45 : 20).add(2, any ? 45 : 20).add(2, kSizesFollow | kUtf8).add(2, 0).add(4, 0);
    head.add(4, entry.crc).narrow(entry.bytes).narrow(entry.bytes).add(2, entry.name.size());
    head.add(2, extra.text.size()).add(2, 0).add(2, 0).add(2, 0).add(4, 0).narrow(entry.header);
    put(head.text + entry.name + extra.text);
  }
  const std::uint64_t bytes = at_ - begin, wide_end = at_;
  Fields end(std::string_view("PK\6\6", 4));
  end.add(8, 44).add(2, 45).add(2, 45).add(4, 0).add(4, 0).add(8, entries_.size()).add(8, entries_.size());
  end.add(8, bytes).add(8, begin);
  end.text.append("PK\6\7", 4);
  end.add(4, 0).add(8, wide_end).add(4, 1);
  end.text.append("PK\5\6", 4);
  const std::uint64_t entries = std::min<std::uint64_t>(entries_.size(), kFull16);
  put(end.add(4, 0).add(2, entries).add(2, entries).narrow(bytes).narrow(begin).add(2, 0).text);
}

}  // namespace torch_file

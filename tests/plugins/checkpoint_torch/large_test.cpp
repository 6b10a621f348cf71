// Files of more than 4 GiB and of more than 65535 records, without the bytes of their data.
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "zip.h"
#include "zip_writer.h"

namespace shale::test {
namespace {

using torch_file::Archive;
using torch_file::Source;
using torch_file::ZipWriter;

// What was written, and zeros between.
class Sparse final : public Source {
 public:
  Sparse() : Source("large.pt") {}
  std::uint64_t size() const override { return end; }
  void read(std::uint64_t offset, void* to, std::uint64_t n) override {
    std::memset(to, 0, n);
    auto part = parts.upper_bound(offset);
    if (part != parts.begin()) --part;
    for (; part != parts.end() && part->first < offset + n; ++part) {
      const std::uint64_t from = std::max(offset, part->first);
      const std::uint64_t until = std::min(offset + n, part->first + part->second.size());
      if (from < until)
        std::memcpy(static_cast<char*>(to) + (from - offset), part->second.data() + (from - part->first), until - from);
    }
  }
  std::map<std::uint64_t, std::string> parts;
  std::uint64_t end = 0;
};

void put(Sparse& to, ZipWriter& zip, const void* bytes, std::uint64_t n) {
  to.parts[zip.position()].append(static_cast<const char*>(bytes), n);
}

TEST(TorchLarge, RecordsAndOffsetsBeyond32Bits) {
  Sparse file;
  ZipWriter zip([&](const void* bytes, std::uint64_t n) { put(file, zip, bytes, n); });
  const std::uint64_t large = (std::uint64_t{5} << 30) + 3;
  const std::string version = "3\n";
  zip.add("x/data/0", large, nullptr);
  zip.add("x/data/1", 0xffffffff, nullptr);
  zip.add("x/data/2", 12, nullptr);
  zip.add("x/version", version.size(), [&] { return version.data(); });
  zip.finish();
  file.end = zip.position();
  const Archive archive(file);
  EXPECT_EQ(archive.at("data/0").bytes, large);
  EXPECT_EQ(archive.at("data/1").bytes, 0xffffffffu);
  EXPECT_EQ(archive.at("data/2").bytes, 12u);
  for (const char* name : {"data/0", "data/1", "data/2"}) EXPECT_EQ(archive.at(name).offset % 64, 0u) << name;
  EXPECT_GT(archive.at("data/2").offset, large + 0xffffffff);
  EXPECT_EQ(archive.text("version", 2), version);
}

TEST(TorchLarge, MoreRecordsThan16Bits) {
  Sparse file;
  ZipWriter zip([&](const void* bytes, std::uint64_t n) { put(file, zip, bytes, n); });
  const std::string version = "3\n";
  for (int k = 0; k < 70000; ++k) zip.add("x/data/" + std::to_string(k), 4, nullptr);
  zip.add("x/version", version.size(), [&] { return version.data(); });
  zip.finish();
  file.end = zip.position();
  const Archive archive(file);
  EXPECT_EQ(archive.at("data/69999").bytes, 4u);
  EXPECT_EQ(archive.find("data/70000"), nullptr);
}

TEST(TorchLarge, ChecksumsAreThoseOfZip) {
  EXPECT_EQ(torch_file::crc32("", 0), 0u);
  EXPECT_EQ(torch_file::crc32("123456789", 9), 0xcbf43926u);
  EXPECT_EQ(torch_file::crc32("The quick brown fox jumps over the lazy dog", 43), 0x414fa339u);
}

}  // namespace
}  // namespace shale::test

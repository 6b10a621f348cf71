#include "core/base/hash.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

TEST(Hash, EqualsThePublishedXxh3) {
  EXPECT_EQ(hash_text(""), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of no bytes, as xxhsum -H2 prints
}

TEST(Hash, PiecesEqualTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t cut : {0ul, 1ul, 239ul, 240ul, 241ul, 4999ul}) {
    Hasher hasher;
    hasher.add(text.substr(0, cut));
    hasher.add(text.substr(cut));
    EXPECT_EQ(hasher.hex(), hash_text(text)) << cut;
  }
  std::string other = text;
  other[2500] = static_cast<char>(other[2500] ^ 1);
  EXPECT_NE(hash_text(other), hash_text(text));
  EXPECT_EQ(hash_text(text).size(), 32u);
}

TEST(Hash, FileEqualsItsText) {
  const std::string path = testing::TempDir() + "/shale_hash_test";
  const std::string text(3'000'000, 'x');
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(hash_file(path), hash_text(text));
  std::filesystem::remove(path);
}

TEST(Hash, MissingFileIsNamed) {
  for (const std::string path : {"/nowhere/file", "/"}) {
    try {
      hash_file(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_EQ(std::string(error.what()).find(path + ": cannot be "), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace shale

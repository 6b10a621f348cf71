#include "core/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/base/error.h"

namespace shale {
namespace {

// llm.c token files: 256 little-endian 32-bit integers (magic, version, number of tokens, zeros), then the tokens.
constexpr std::size_t kHeaderBytes = 256 * 4;
constexpr std::int32_t kMagic16 = 20240520, kVersion16 = 1, kMagic32 = 20240801, kVersion32 = 7;

constexpr std::size_t kLookedAt = 4096;  // 16-bit words looked at to tell 16-bit from 32-bit ids

std::int32_t header_word(const MappedFile& file, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, file.data() + 4 * index, sizeof word);
  return word;
}

bool has_magic(const MappedFile& file) {
  if (file.size() < kHeaderBytes) return false;
  const std::int32_t magic = header_word(file, 0);
  return magic == kMagic16 || magic == kMagic32;
}

bool is_utf16(const MappedFile& file) {
  const unsigned char* at = file.data();
  if (file.size() >= 2 && ((at[0] == 0xFF && at[1] == 0xFE) || (at[0] == 0xFE && at[1] == 0xFF))) return true;
  // Without a mark: every second byte of the first letters is zero.
  if (file.size() < 8) return false;
  const auto zeros = [at](std::size_t from) { return !at[from] && !at[from + 2] && !at[from + 4] && !at[from + 6]; };
  return zeros(0) != zeros(1);
}

// 32-bit ids below 65,536 read as 16-bit words: every second word is zero, and not all of the others.
bool looks_32_bit(const MappedFile& file) {
  const std::size_t pairs = std::min(file.size() / 4, kLookedAt / 2);
  if (pairs < 8) return false;
  bool low_used = false;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::array<std::uint16_t, 2> words{};
    std::memcpy(words.data(), file.data() + 4 * i, sizeof words);
    if (words[1] != 0) return false;
    low_used = low_used || words[0] != 0;
  }
  return low_used;
}

void refuse_pointer(const MappedFile& file) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  const std::string_view start(reinterpret_cast<const char*>(file.data()), std::min(file.size(), kPointer.size()));
  if (start == kPointer) {
    fail(Code::input, file.path(), ": is a Git LFS pointer of ", file.size(),
         " bytes, expected the data; fetch the real file (git lfs pull)");
  }
}

TokenFile open_text(MappedFile file) {
  if (has_magic(file)) fail(Code::input, file.path(), ": is an llm.c token file, not text; set dataset = \"llmc\"");
  if (is_utf16(file)) fail(Code::input, file.path(), ": is UTF-16 text, expected UTF-8; convert it (iconv -f UTF-16)");
  const auto tokens = static_cast<std::int64_t>(file.size());
  return {std::move(file), TokenFormat::text, 0, 1, tokens};
}

TokenFile open_nanogpt(MappedFile file) {
  if (has_magic(file)) {
    fail(Code::input, file.path(), ": starts with the llm.c magic ", header_word(file, 0),
         ", expected 16-bit ids without a header; set dataset = \"llmc\"");
  }
  if (file.size() % 2 != 0) {
    fail(Code::input, file.path(), ": has ", file.size(), " bytes, expected an even number: 2 per token id");
  }
  if (looks_32_bit(file)) {
    fail(Code::input, file.path(),
         ": every second 16-bit word is 0: found 32-bit ids, expected 16-bit ids; convert them");
  }
  const auto tokens = static_cast<std::int64_t>(file.size() / 2);
  return {std::move(file), TokenFormat::nanogpt, 0, 2, tokens};
}

TokenFile open_llmc(MappedFile file) {
  const std::string& path = file.path();
  if (file.size() < kHeaderBytes) {
    fail(Code::input, path, ": has ", file.size(), " bytes, expected at least the ", kHeaderBytes,
         " of an llm.c header");
  }
  const std::int32_t magic = header_word(file, 0), version = header_word(file, 1), count = header_word(file, 2);
  if (!has_magic(file)) {
    fail(Code::input, path, ": has magic ", magic, ", expected ", kMagic16, " (16-bit ids) or ", kMagic32,
         " (32-bit ids) of llm.c");
  }
  const std::int32_t wanted = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != wanted) {
    fail(Code::input, path, ": has version ", version, ", expected version ", wanted, " for magic ", magic);
  }
  const int width = magic == kMagic16 ? 2 : 4;
  const std::int64_t expected = static_cast<std::int64_t>(kHeaderBytes) + std::int64_t{count} * width;
  if (count < 0 || expected != static_cast<std::int64_t>(file.size())) {
    fail(Code::input, path, ": has ", file.size(), " bytes, expected ", expected, " for the ", count,
         " tokens of its header, ", width, " bytes each");
  }
  return {std::move(file), TokenFormat::llmc, static_cast<std::int64_t>(kHeaderBytes), width, count};
}

TokenFormat detect(const MappedFile& file) {
  if (has_magic(file)) return TokenFormat::llmc;
  return file.path().ends_with(".bin") ? TokenFormat::nanogpt : TokenFormat::text;
}

template <class Id>
void copy_ids(const unsigned char* from, std::int64_t n, std::int64_t* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    Id id;
    std::memcpy(&id, from + i * static_cast<std::int64_t>(sizeof id), sizeof id);
    to[i] = id;
  }
}

template <class Id>
std::int64_t largest_id(const unsigned char* from, std::int64_t n) {
  Id most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Id id;
    std::memcpy(&id, from + i * static_cast<std::int64_t>(sizeof id), sizeof id);
    most = std::max(most, id);
  }
  return most;
}

}  // namespace

void TokenFile::copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const {
  const unsigned char* from = file.data() + offset + begin * width;
  if (width == 1) copy_ids<std::uint8_t>(from, n, to);
  if (width == 2) copy_ids<std::uint16_t>(from, n, to);
  if (width == 4) copy_ids<std::uint32_t>(from, n, to);
}

std::int64_t TokenFile::largest() const {
  const unsigned char* from = file.data() + offset;
  if (width == 1) return largest_id<std::uint8_t>(from, tokens);
  return width == 2 ? largest_id<std::uint16_t>(from, tokens) : largest_id<std::uint32_t>(from, tokens);
}

TokenFile open_token_file(const std::string& path, TokenFormat format) {
  MappedFile file(path);
  refuse_pointer(file);
  if (format == TokenFormat::detect) format = detect(file);
  if (format == TokenFormat::text) return open_text(std::move(file));
  return format == TokenFormat::nanogpt ? open_nanogpt(std::move(file)) : open_llmc(std::move(file));
}

}  // namespace shale

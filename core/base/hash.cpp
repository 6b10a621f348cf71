#include "core/base/hash.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

std::string hex_of(const XXH128_hash_t& hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes.digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace

struct alignas(64) Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  check(XXH3_128bits_reset(&state_->xxh) == XXH_OK, "the checksum could not be started");
}

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;

void Hasher::add(const void* bytes, std::size_t n) {
  if (n > 0) XXH3_128bits_update(&state_->xxh, bytes, n);
}

std::string Hasher::hex() const { return hex_of(XXH3_128bits_digest(&state_->xxh)); }

std::string hash_text(std::string_view text) { return hex_of(XXH3_128bits(text.data(), text.size())); }

std::string hash_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail(Code::io, path, ": cannot be opened: ", std::strerror(errno));
  Hasher hasher;
  std::vector<char> buffer(kReadBytes);
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) hasher.add(buffer.data(), n);
  if (std::ferror(file.get())) fail(Code::io, path, ": cannot be read: ", std::strerror(errno));
  return hasher.hex();
}

}  // namespace shale

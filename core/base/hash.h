// 128-bit checksums (XXH3, https://xxhash.com) for plans, plugins and files: they find damage, they are no signatures.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace shale {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  void add(const void* bytes, std::size_t n);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::string hex() const;  // 32 lower-case digits of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_text(std::string_view);
std::string hash_file(const std::string& path);  // Error{io} naming the path

}  // namespace shale

// One token file, checked and mapped. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/data/mapped_file.h"
#include "core/data/source.h"

namespace shale {

struct TokenFile {
  MappedFile file;
  TokenFormat format;   // never detect
  std::int64_t offset;  // bytes before the first token
  int width;            // bytes of a token: 1, 2 or 4, little-endian
  std::int64_t tokens;

  void copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const;
  std::int64_t largest() const;  // reads all of it
};

// Error{input} naming the file, what was found and what was expected.
TokenFile open_token_file(const std::string& path, TokenFormat);

// The files a path stands for, sorted by name: itself, the files in a folder, or what a pattern matches; at least one.
std::vector<std::string> token_files(const std::string& path);

}  // namespace shale

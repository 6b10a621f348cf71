// The header of a safetensors file, read without trust and written.
#pragma once

#include <optional>

#include "folder.h"

namespace hf {

inline constexpr std::uint64_t kLargestHeader = 100'000'000;  // what safetensors itself allows

const char* dtype_name(std::uint32_t dtype);  // as safetensors spells it; nullptr for one it is not told
std::optional<std::uint32_t> dtype_of(const std::string& name);

struct Stored {
  std::string name;
  std::uint32_t dtype = 0;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // of the file, once read_header returns
};
// Sorted by name. Tensors fill the file without holes and overlap, each has the bytes its shape takes.
std::vector<Stored> read_header(const Folder&, const std::string& file);

// Length and text for tensors whose begin and end count from the first byte of data.
std::string header_text(const std::vector<Stored>&);

}  // namespace hf

// The JSON side of the format: what is where. Reading trusts nothing and ends in sdk::Error(SHALE_CORRUPT).
#pragma once

#include <nlohmann/json.hpp>

#include "shale/plugin.hpp"

namespace sharded {

using Json = nlohmann::json;

inline constexpr char kIndexFile[] = "index.json";
inline constexpr std::uint64_t kLargestIndex = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kLargestHeader = 100'000'000;  // what safetensors itself allows

struct Dtype {
  std::uint32_t dtype;
  const char* name;  // as safetensors spells it
};
inline constexpr Dtype kDtypes[] = {
    {SHALE_F64, "F64"}, {SHALE_F32, "F32"},   {SHALE_BF16, "BF16"},         {SHALE_F16, "F16"},
    {SHALE_I64, "I64"}, {SHALE_I32, "I32"},   {SHALE_I16, "I16"},           {SHALE_I8, "I8"},
    {SHALE_U8, "U8"},   {SHALE_BOOL, "BOOL"}, {SHALE_F8_E4M3FN, "F8_E4M3"}, {SHALE_F8_E5M2, "F8_E5M2"}};
const char* dtype_name(std::uint32_t dtype);

std::uint64_t fnv(std::string_view bytes);  // tells headers apart; no protection against intent

// One item without its boxes, as it stands in the index.
Json item_json(const shale_item&);
// The index out of the reports of all parts: {"file", "header", "entries": [item + "offset", "begin", "extent"]}.
std::string merge(const shale_finish&);

// The folder as the host lends it.
struct Files {
  const shale::sdk::Plugin& plugin;
  const shale_files& table;
  shale_folder* folder;
  std::string text(const char* name, std::uint64_t most) const;  // a whole file
  std::uint64_t header_fnv(const std::string& name) const;       // of a safetensors file: length and header
};
void describe(const Files&, const shale_index&);

}  // namespace sharded

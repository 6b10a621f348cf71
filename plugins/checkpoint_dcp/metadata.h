// A folder of torch.distributed.checkpoint as items: .metadata says which tensor has which chunk in which file.
#pragma once

#include "source.h"

namespace dcp {

inline constexpr char kMetadata[] = ".metadata";
inline constexpr std::uint64_t kLargestMetadata = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kLargestItem = std::uint64_t{1} << 26;  // the pickle of one tensor or value

void describe(const shale::sdk::Plugin&, shale_folder*, const shale_index&);

}  // namespace dcp

// The items of a file of torch.save: one written here comes back as it was, any other as far as names tell.
#pragma once

#include "tensors.h"

namespace torch_file {

inline constexpr char kFile[] = "checkpoint.pt";
inline constexpr std::uint64_t kLargestPickle = std::uint64_t{1} << 29;

void describe(const shale::sdk::Plugin&, Archive&, const shale_index&);

}  // namespace torch_file

// model.safetensors.index.json: which of several files holds which tensor.
#pragma once

#include <map>

#include "folder.h"

namespace hf {

using WeightMap = std::map<std::string, std::string>;  // tensor -> file
WeightMap read_weight_map(const Folder&);
std::string weight_map_text(const WeightMap&, std::uint64_t total_size);

}  // namespace hf

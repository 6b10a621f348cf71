// From one format to another, tensor by tensor: the largest one must fit into memory, not the model.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/snapshot.h"

namespace shale {

struct ConvertOptions {
  bool weights_only = false;            // also when the new format holds no optimizer state
  std::optional<at::ScalarType> dtype;  // of floating-point weights; as they are otherwise
  std::string model_json;               // config.json spelling
  std::string assets;                   // folder with tokenizer files and the like; "" = none
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // bytes of tensors; may be empty
};

// Writes what `from` holds to the folder `to`, which must not be there; it appears whole or not at all. Returns the ids
// of what was left out because the new format does not hold it. Errors as save_snapshot and SnapshotReader::read.
std::vector<std::string> convert(SnapshotReader& from, CheckpointFormat& format, const std::string& to,
                                 const ConvertOptions&);

}  // namespace shale

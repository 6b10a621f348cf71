// Reads weights of a Hugging Face folder: model.safetensors, or the shards named in model.safetensors.index.json. No
// length, offset, name or count of a file is trusted; every fault is Error{input} naming file, tensor, found and
// expected, before a tensor is used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/model/architecture.h"
#include "core/model/description.h"

namespace shale {

class WeightsFolder {
 public:
  // Opens and checks all headers. Each rank opens the folder itself and reads only what it asks for.
  static std::unique_ptr<WeightsFolder> open(const std::string& folder);
  virtual ~WeightsFolder() = default;

  // Every parameter of the model is there with its shape in a floating dtype, and there is nothing the model does not
  // know (rotary buffers are passed over; a head stored although tied must equal the embedding, which is read for it).
  // Error{input} listing what does not fit.
  virtual void match(const ModelInfo&, const Architecture&) const = 0;

  // Elements [begin, end) of the parameter's row-major order, in the file's dtype; at most that many bytes are read.
  virtual at::Tensor read(const std::string& name, std::int64_t begin, std::int64_t end) const = 0;
};

}  // namespace shale

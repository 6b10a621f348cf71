// The layout of one safetensors file (https://huggingface.co/docs/safetensors): 8 bytes of header length, a JSON
// header, then the tensors back to back. Nothing in the file is trusted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "core/model/description.h"
#include "core/model/input_file.h"

namespace shale {

struct StoredTensor {
  std::string dtype;  // as the file spells it: "BF16"
  Shape shape;
  std::uint64_t begin = 0;  // first byte, from the start of the file
  std::uint64_t end = 0;    // one past its last byte; end - begin is what dtype and shape take
};

using StoredTensors = std::map<std::string, StoredTensor>;

// The tensors of a file, checked against its size: they lie back to back, without gap or overlap, and fill the file.
// Error{input} naming the file and the tensor otherwise.
StoredTensors read_safetensors_header(const InputFile&);

// The torch dtype of a safetensors dtype that parameters may have (F64, F32, F16, BF16), or none.
std::optional<c10::ScalarType> parameter_dtype(const std::string& dtype);

}  // namespace shale

// What torch.save makes of a tensor: a call with a storage, an offset, a shape and strides. Decoding checks that the
// elements lie inside the record of the storage.
#pragma once

#include "pickle.h"
#include "zip.h"

namespace torch_file {

struct Type {
  const char *storage, *name;  // storage "": written with an untyped one
  std::uint32_t dtype;
};
inline constexpr Type kTypes[] = {{"DoubleStorage", "float64", SHALE_F64},     {"FloatStorage", "float32", SHALE_F32},
                                  {"BFloat16Storage", "bfloat16", SHALE_BF16}, {"HalfStorage", "float16", SHALE_F16},
                                  {"LongStorage", "int64", SHALE_I64},         {"IntStorage", "int32", SHALE_I32},
                                  {"ShortStorage", "int16", SHALE_I16},        {"CharStorage", "int8", SHALE_I8},
                                  {"ByteStorage", "uint8", SHALE_U8},          {"BoolStorage", "bool", SHALE_BOOL},
                                  {"", "float8_e4m3fn", SHALE_F8_E4M3FN},      {"", "float8_e5m2", SHALE_F8_E5M2}};
const Type& type_of(std::uint32_t dtype);  // Error for one that is not held

// The names a file of tensors may use; storages and dtypes of kTypes follow, in its order.
inline constexpr std::int64_t kRebuildTensor = 0, kRebuildTensorTyped = 1, kRebuildParameter = 2, kSize = 3;
inline constexpr std::int64_t kOrderedDict = 4, kUntypedStorage = 5, kDevice = 6, kEncode = 7;
inline constexpr std::int64_t kFirstStorage = 8;
inline constexpr std::int64_t kFirstDtype = kFirstStorage + static_cast<std::int64_t>(std::size(kTypes));
std::vector<Global> tensor_globals();

struct Tensor {
  std::uint32_t dtype = 0;
  std::vector<std::int64_t> shape, strides;
  std::uint64_t offset = 0;  // of element 0 in the file
  bool operator==(const Tensor&) const = default;
  std::uint64_t width() const { return SHALE_DTYPE_BITS(dtype) / 8; }
  std::uint64_t numel() const;  // checked by reach
  // Elements from the first to the last, both included; nothing when numbers are negative or beyond `most` elements.
  bool reach(std::uint64_t most, std::uint64_t& elements) const;
  bool row_major() const;
};

bool is_tensor(const Pickle&, Id);
// The dtype that a name of the table stands for.
std::uint32_t dtype_of(const Pickle&, Id);
Tensor tensor_of(const Pickle&, Id, const Archive&);
std::vector<std::int64_t> sizes_of(const Pickle&, Id);  // of a tuple or torch.Size of integers

// Tensors that are not row-major are read through a token that says where and how they lie.
std::string token_of(const Tensor&, const std::string& file);
std::string file_of(shale_str token);
void read_strided(Source&, shale_str token, void* to, std::uint64_t n);

}  // namespace torch_file

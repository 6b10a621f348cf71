#include "core/loader/tensor_view.h"

#include <ATen/ops/from_blob.h>

#include "core/loader/dtypes.h"

namespace shale {
namespace {

shale_status* bad(const char* argument, const std::string& text) {
  return make_status(SHALE_BAD_ARGUMENT, argument, text);
}

const char* device_name(std::uint32_t type) {
  return type == SHALE_DEVICE_CPU ? "the CPU" : type == SHALE_DEVICE_CUDA ? "a CUDA device" : "an unknown device";
}

std::uint32_t device_type_of(at::Device device) { return device.is_cuda() ? SHALE_DEVICE_CUDA : SHALE_DEVICE_CPU; }

// Elements of the shape, or a status: its numbers come from a plugin.
shale_status* count(const shale_tensor& t, const char* argument, std::uint64_t& elements) {
  elements = 1;
  bool empty = false;
  for (std::uint32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] < 0) return bad(argument, str("has ", t.shape[d], " elements in dimension ", d));
    empty = empty || t.shape[d] == 0;
  }
  if (empty) return elements = 0, nullptr;
  for (std::uint32_t d = 0; d < t.ndim; ++d)
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(t.shape[d]), &elements) ||
        elements > (std::uint64_t{1} << 56))
      return bad(argument, "has more elements than any memory holds");
  return nullptr;
}

// The stride of a dimension of one element means nothing.
shale_status* check_strides(const shale_tensor& t, const char* argument) {
  std::int64_t stride = 1;
  for (std::uint32_t d = t.ndim; d-- > 0;) {
    if (t.shape[d] != 1 && t.strides[d] != stride)
      return bad(argument,
                 str("has stride ", t.strides[d], " in dimension ", d, "; it must be row-major, so ", stride));
    stride *= t.shape[d];
  }
  return nullptr;
}

shale_status* check_device(const shale_tensor& t, const char* argument, at::Device device) {
  const std::uint32_t wanted = device_type_of(device);
  if (t.device_type != wanted)
    return bad(argument, str("lies on ", device_name(t.device_type), ", the lane works on ", device_name(wanted)));
  if (wanted == SHALE_DEVICE_CUDA && t.device_index != static_cast<std::uint32_t>(device.index()))
    return bad(argument, str("lies on CUDA device ", t.device_index, ", the lane works on ", int{device.index()}));
  return nullptr;
}

}  // namespace

shale_status* tensor_from_c(const shale_tensor* theirs, const char* argument, Use use, at::Device device,
                            at::Tensor& out) {
  shale_tensor t;
  if (!take(theirs, t))
    return bad(argument, theirs == nullptr ? "is NULL"
                                           : str("has struct_size ", size_of(theirs), ", ABI 0.1 has ",
                                                 kBaseline<shale_tensor>, ": fill it with SHALE_VAR"));
  const auto dtype = dtype_from_c(t.dtype);
  if (!dtype) return bad(argument, str("has dtype ", t.dtype, ", which this shale cannot work with"));
  if (t.ndim > SHALE_MAX_DIMS) return bad(argument, str("has ", t.ndim, " dimensions; at most ", SHALE_MAX_DIMS));
  if (auto* problem = check_device(t, argument, device)) return problem;
  std::uint64_t elements = 0;
  if (auto* problem = count(t, argument, elements)) return problem;
  if (elements > 0) {
    if (auto* problem = check_strides(t, argument)) return problem;
    if (t.data == nullptr) return bad(argument, "has no data");
  }
  if (reinterpret_cast<std::uintptr_t>(t.data) % (SHALE_DTYPE_BITS(t.dtype) / 8) != 0)
    return bad(argument, "begins inside an element: its data is not aligned");
  if (use == Use::write && t.read_only != 0) return bad(argument, "is read-only");
  out = at::from_blob(t.data, at::IntArrayRef(t.shape, t.ndim), at::TensorOptions(*dtype).device(device));
  return nullptr;
}

shale_tensor tensor_to_c(const at::Tensor& tensor, Use use) {
  check(tensor.is_contiguous() && tensor.dim() <= SHALE_MAX_DIMS, "a tensor for a plugin has ", tensor.dim(),
        " dimensions or is not contiguous");
  shale_tensor t{};
  t.struct_size = sizeof t, t.dtype = dtype_to_c(tensor.scalar_type());
  t.data = tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
  t.device_type = device_type_of(tensor.device());
  t.device_index = tensor.is_cuda() ? static_cast<std::uint32_t>(tensor.device().index()) : 0;
  t.ndim = static_cast<std::uint32_t>(tensor.dim()), t.read_only = use == Use::read;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) t.shape[d] = tensor.size(d), t.strides[d] = tensor.stride(d);
  return t;
}

at::Tensor flat_view(const at::Tensor& t) {
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), {t.numel()}, t.options());
}

at::Tensor byte_view(const at::Tensor& t) {
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), {static_cast<std::int64_t>(t.nbytes())},
                       t.options().dtype(at::kByte));
}

bool overlaps(const at::Tensor& a, const at::Tensor& b) {
  const auto* x = static_cast<const char*>(a.const_data_ptr());
  const auto* y = static_cast<const char*>(b.const_data_ptr());
  return a.numel() > 0 && b.numel() > 0 && x < y + b.nbytes() && y < x + a.nbytes();
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.nbytes() == b.nbytes();
}

}  // namespace shale

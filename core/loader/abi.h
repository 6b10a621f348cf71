// Reading the structs of the plugin ABI: sizes, texts, kinds. Only files of this room include it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"

namespace shale {

// Bytes of a struct as ABI 0.1 has it: the least a plugin fills in. A member added later stays out of it.
template <class T>
inline constexpr std::size_t kBaseline = 0;
template <>
inline constexpr std::size_t kBaseline<shale_plugin> = offsetof(shale_plugin, get_interface) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_desc> = offsetof(shale_desc, option_stride) + sizeof(std::uint32_t);
template <>
inline constexpr std::size_t kBaseline<shale_option> = offsetof(shale_option, choices) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_sharding> = offsetof(shale_sharding, plan) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_precision> = offsetof(shale_precision, plan) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_offload> = offsetof(shale_offload, plan) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_checkpoint> = offsetof(shale_checkpoint, read) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_unit_plan> = offsetof(shale_unit_plan, scratch_bytes) + 8;
template <>
inline constexpr std::size_t kBaseline<shale_exchange> = offsetof(shale_exchange, step_end) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_outer> = offsetof(shale_outer, apply) + sizeof(void*);
template <>
inline constexpr std::size_t kBaseline<shale_state> = offsetof(shale_state, name) + sizeof(shale_str);
template <>
inline constexpr std::size_t kBaseline<shale_tensor> = offsetof(shale_tensor, strides) + 8 * SHALE_MAX_DIMS;
template <>
inline constexpr std::size_t kBaseline<shale_param_precision> = offsetof(shale_param_precision, moments_block) + 4;
template <>
inline constexpr std::size_t kBaseline<shale_loss_scale> = offsetof(shale_loss_scale, max_skips) + 4;
template <>
inline constexpr std::size_t kBaseline<shale_item> = offsetof(shale_item, alias_of) + sizeof(shale_str);
template <>
inline constexpr std::size_t kBaseline<shale_box> = offsetof(shale_box, extent) + 8 * SHALE_MAX_DIMS;

// Every struct begins with its size.
inline std::uint32_t size_of(const void* theirs) {
  std::uint32_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  return size;
}

// mine = theirs, cut to my size or filled up with 0. False when theirs is NULL or shorter than ABI 0.1's.
template <class T>
bool take(const T* theirs, T& mine) {
  static_assert(kBaseline<T> > 0);
  if (theirs == nullptr || size_of(theirs) < kBaseline<T>) return false;
  mine = T{};
  const std::size_t size = std::min<std::size_t>(size_of(theirs), sizeof(T));
  std::memcpy(&mine, theirs, size);
  mine.struct_size = static_cast<std::uint32_t>(size);
  return true;
}

inline shale_str to_c(const std::string& s) { return {s.data(), s.size()}; }
inline std::string to_text(shale_str s) { return s.ptr == nullptr ? "" : std::string(s.ptr, s.len); }
inline std::string to_text(const char* s) { return s == nullptr ? "" : s; }

inline constexpr const char* kKinds[] = {"", "sharding", "precision", "offload", "checkpoint"};
inline constexpr std::uint32_t kKindCount = 4;  // SHALE_KIND_... run from 1 to here

inline std::uint32_t kind_number(const std::string& kind) {  // 0 = no such kind
  for (std::uint32_t k = 1; k <= kKindCount; ++k)
    if (kind == kKinds[k]) return k;
  return 0;
}

}  // namespace shale

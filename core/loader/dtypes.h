// SHALE_F32, ... and at::ScalarType.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

namespace shale {

std::uint32_t dtype_to_c(at::ScalarType);                   // 0 = has no number in the ABI
std::optional<at::ScalarType> dtype_from_c(std::uint32_t);  // nothing = not known or not held by this LibTorch

}  // namespace shale

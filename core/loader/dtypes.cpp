#include "core/loader/dtypes.h"

#include "core/loader/abi.h"

namespace shale {
namespace {

struct Pair {
  std::uint32_t c;
  at::ScalarType torch;
};
constexpr Pair kPairs[] = {
    {SHALE_F64, at::kDouble},
    {SHALE_F32, at::kFloat},
    {SHALE_BF16, at::kBFloat16},
    {SHALE_F16, at::kHalf},
    {SHALE_F8_E4M3FN, at::kFloat8_e4m3fn},
    {SHALE_F8_E5M2, at::kFloat8_e5m2},
    {SHALE_F8_E8M0, at::kFloat8_e8m0fnu},
    {SHALE_I64, at::kLong},
    {SHALE_I32, at::kInt},
    {SHALE_I16, at::kShort},
    {SHALE_I8, at::kChar},
    {SHALE_U8, at::kByte},
    {SHALE_BOOL, at::kBool},
};

}  // namespace

std::uint32_t dtype_to_c(at::ScalarType type) {
  for (const Pair& p : kPairs)
    if (p.torch == type) return p.c;
  return 0;
}

std::optional<at::ScalarType> dtype_from_c(std::uint32_t type) {
  for (const Pair& p : kPairs)
    if (p.c == type) return p.torch;
  return std::nullopt;
}

}  // namespace shale

#include "core/comm/rank_order_sum.h"

#include <algorithm>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements: the running sum stays in the first-level cache

template <class In, class Out>
void sum(Out* __restrict out, std::int64_t n, std::span<const void* const> pieces) {
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(n, begin + kBlock);
    const In* __restrict first = static_cast<const In*>(pieces[0]);
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<Out>(first[i]);
    for (const void* piece : pieces.subspan(1)) {
      const In* __restrict next = static_cast<const In*>(piece);
      for (std::int64_t i = begin; i < end; ++i) out[i] += static_cast<Out>(next[i]);
    }
  }
}

template <class Out>
void sum_into(Out* out, std::int64_t n, std::span<const void* const> pieces, at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return sum<double>(out, n, pieces);
    case at::kFloat:
      return sum<float>(out, n, pieces);
    case at::kBFloat16:
      return sum<c10::BFloat16>(out, n, pieces);
    case at::kHalf:
      return sum<c10::Half>(out, n, pieces);
    default:
      fail(Code::internal, "a sum over ranks of dtype ", c10::toString(type), " is not supported");
  }
}

}  // namespace

void rank_order_sum(const at::Tensor& out, std::span<const void* const> pieces, at::ScalarType type) {
  check(!pieces.empty() && out.is_contiguous(), "a sum over ranks needs pieces and a contiguous result");
  if (out.scalar_type() == at::kDouble) return sum_into(out.data_ptr<double>(), out.numel(), pieces, type);
  check(out.scalar_type() == at::kFloat && type != at::kDouble, "a sum over ranks of ", c10::toString(type), " into ",
        c10::toString(out.scalar_type()), " would lose digits");
  sum_into(out.data_ptr<float>(), out.numel(), pieces, type);
}

}  // namespace shale

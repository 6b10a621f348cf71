// The sum at the end of a reduce-scatter: pieces added in the order given, so the bits do not depend on timing, thread
// count or who sums. Any thread.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

namespace shale {

// out[i] = pieces[0][i] + pieces[1][i] + ... in the type of out. out: contiguous CPU tensor, float32 or float64; each
// piece: as many elements of type `type` (float64, float32, bfloat16, float16), not overlapping out. Allocates nothing.
void rank_order_sum(const at::Tensor& out, std::span<const void* const> pieces, at::ScalarType type);

}  // namespace shale

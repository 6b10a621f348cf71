// For any machine, and the choice among the sets.
#include "core/ops/kernels_body.h"

namespace shale {

const Kernels& base_kernels() {
  static constexpr Kernels table = make_table("base");
  return table;
}

#ifdef SHALE_KERNELS_AVX2
const Kernels& avx2_table();
const Kernels* avx2_kernels() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2_table() : nullptr;
}
#else
const Kernels* avx2_kernels() { return nullptr; }
#endif

const Kernels& kernels() {
  static const Kernels& best = avx2_kernels() ? *avx2_kernels() : base_kernels();
  return best;
}

}  // namespace shale

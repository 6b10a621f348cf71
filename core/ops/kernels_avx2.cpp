// Compiled for x86-64-v3: reached only through avx2_kernels(), which asks the machine first.
#include "core/ops/kernels_body.h"

namespace shale {

const Kernels& avx2_table();
const Kernels& avx2_table() {
  static constexpr Kernels table = make_table("avx2");
  return table;
}

}  // namespace shale

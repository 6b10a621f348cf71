#include "core/optim/kernels.inl"

namespace shale {

const OptimKernels& base_kernels() { return kTable; }

const OptimKernels& optim_kernels() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? v3_kernels() : base_kernels();
}

}  // namespace shale

#include "core/optim/kernels.inl"

namespace shale {

const OptimKernels& optim_base_kernels() { return kTable; }

const OptimKernels& optim_kernels() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? optim_v3_kernels() : optim_base_kernels();
}

}  // namespace shale

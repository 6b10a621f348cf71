#include "core/optim/kernels.inl"

namespace shale {

const OptimKernels& optim_v3_kernels() { return kTable; }

}  // namespace shale

#include "core/optim/kernels.inl"

namespace shale {

const OptimKernels& v3_kernels() { return kTable; }

}  // namespace shale

// The inner loops of the optimizer, compiled twice: for any x86-64 and for AVX2. Plain arrays, no aliasing, one thread.
#pragma once

#include <cstdint>

namespace shale {

struct AdamWNumbers {
  double beta1, beta2, eps;
  double step_size;  // lr / (1 - beta1^t)
  double decay;      // 1 - lr * weight_decay
  double root;       // 1 / sqrt(1 - beta2^t)
  double grad_scale;
};

template <class T>
struct AdamWArrays {
  T* master;
  const T* grad;
  T *exp_avg, *exp_avg_sq;
  std::int64_t n;
};

struct OptimKernels {
  void (*adamw_f32)(const AdamWArrays<float>&, const AdamWNumbers&);
  void (*adamw_f64)(const AdamWArrays<double>&, const AdamWNumbers&);
  double (*squares_f32)(const float*, std::int64_t n);  // sum of squares, added up in float64
  double (*squares_f64)(const double*, std::int64_t n);
};

const OptimKernels& optim_base_kernels();
const OptimKernels& optim_v3_kernels();
const OptimKernels& optim_kernels();  // the best this processor runs

}  // namespace shale

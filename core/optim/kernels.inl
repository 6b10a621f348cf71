// The loops themselves.
#include <cmath>
#include <cstdint>

#include "core/optim/kernels.h"

namespace shale {
namespace {

template <class T>
void adamw(const AdamWArrays<T>& a, const AdamWNumbers& h) {
  T* __restrict p = a.master;
  const T* __restrict g = a.grad;
  T* __restrict m = a.exp_avg;
  T* __restrict v = a.exp_avg_sq;
  const T b2 = static_cast<T>(h.beta2), c1 = static_cast<T>(1 - h.beta1), c2 = static_cast<T>(1 - h.beta2);
  const T step = static_cast<T>(h.step_size), decay = static_cast<T>(h.decay), root = static_cast<T>(h.root);
  const T eps = static_cast<T>(h.eps), scale = static_cast<T>(h.grad_scale);
  for (std::int64_t i = 0; i < a.n; ++i) {
    const T gi = g[i] * scale;
    const T mi = m[i] + c1 * (gi - m[i]);
    const T vi = b2 * v[i] + c2 * gi * gi;
    p[i] = p[i] * decay - step * mi / (std::sqrt(vi) * root + eps);
    m[i] = mi, v[i] = vi;
  }
}

// Eight independent sums let the compiler use vectors without reordering anything.
template <class T>
double squares(const T* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;
  double total = 0;
  for (std::int64_t b = 0; b < n; b += kBlock) {
    const std::int64_t end = b + kBlock < n ? b + kBlock : n;
    double lane[8] = {};
    std::int64_t i = b;
    for (; i + 8 <= end; i += 8)
      for (int k = 0; k < 8; ++k) lane[k] += static_cast<double>(x[i + k]) * x[i + k];
    for (; i < end; ++i) lane[0] += static_cast<double>(x[i]) * x[i];
    for (double part : lane) total += part;
  }
  return total;
}

constexpr OptimKernels kTable{&adamw<float>, &adamw<double>, &squares<float>, &squares<double>};

}  // namespace
}  // namespace shale

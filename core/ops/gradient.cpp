#include <ATen/ops/mm.h>

#include "core/base/error.h"
#include "core/ops/function.h"

namespace shale {
namespace {

bool half(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

// Without bfloat16 instructions the library's 16-bit matrix product is about six times slower than the float32 one;
// with them it is two to three times faster. Both multiply exactly and add in float32.
bool widened(const at::Tensor& x) {
#if defined(__x86_64__)
  static const bool native = __builtin_cpu_supports("avx512bf16");
#else
  static const bool native = false;
#endif
  return x.is_cpu() && half(x) && !(native && x.scalar_type() == at::kBFloat16);
}

}  // namespace

bool take_fresh(Weight& w) {
  check(w.fresh != nullptr && w.grad.defined(), "a trainable weight has no gradient memory");
  const bool fresh = *w.fresh;
  *w.fresh = false;
  return fresh;
}

void write_gradient(Weight& w, const at::Tensor& dw) {
  if (take_fresh(w))
    w.grad.copy_(dw);
  else
    w.grad.add_(dw);
}

void write_product(Weight& w, const at::Tensor& a, const at::Tensor& b) {
  const bool wide = widened(a);
  const auto type = wide ? at::kFloat : a.scalar_type();
  if (w.grad.scalar_type() != type) return write_gradient(w, wide ? a.to(type).mm(b.to(type)) : a.mm(b));
  const auto left = a.to(type), right = b.to(type);
  if (take_fresh(w))
    at::mm_out(w.grad, left, right);
  else
    w.grad.addmm_(left, right);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!widened(a)) return a.mm(b);
  return a.to(at::kFloat).mm(b.to(at::kFloat)).to(a.scalar_type());
}

}  // namespace shale

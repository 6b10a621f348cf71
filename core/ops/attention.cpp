#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "core/base/error.h"
#include "core/ops/function.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// [B, T, heads, D] <-> [B, heads, T, D]; a view, in the type the statistics are kept in. The CPU kernel's backward for
// 16-bit types is about ten times slower than the float32 one.
at::Tensor by_head(const at::Tensor& x) { return x.to(wide_type(x)).transpose(1, 2); }

// The tiled CPU kernel: no matrix of T x T, no repeated key/value heads, float32 and float64.
struct CpuAttentionFunction : Function<CpuAttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const auto [out, lse] =
        at::_scaled_dot_product_flash_attention_for_cpu(by_head(q), by_head(k), by_head(v), 0.0, true);
    ctx->save_for_backward({q, k, v, out, lse});
    return out.transpose(1, 2).reshape({q.size(0), q.size(1), -1}).to(q.scalar_type());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto& q = saved[0];
    const auto d = by_head(grads[0].contiguous().view(q.sizes()));
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        d, by_head(q), by_head(saved[1]), by_head(saved[2]), saved[3], saved[4], 0.0, true);
    const auto back = [&](const at::Tensor& x) { return x.transpose(1, 2).to(q.scalar_type()); };
    return {back(dq), back(dk), back(dv)};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check(q.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(1) == k.size(1) &&
            q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
        "attention: q ", q.sizes(), ", k ", k.sizes(), " and v ", v.sizes(), " do not fit");
  if (q.is_cpu()) return CpuAttentionFunction::apply(q.contiguous(), k.contiguous(), v.contiguous());
  const auto out = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, 0.0,
                                                    true, std::nullopt, q.size(2) != k.size(2));
  return out.transpose(1, 2).reshape({q.size(0), q.size(1), -1});
}

}  // namespace shale

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/base/error.h"
#include "core/ops/function.h"
#include "core/ops/kernels.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Normed {
  at::Tensor y, r;  // r [..., 1] in the wide type
};

Normed normalise(const at::Tensor& x, const at::Tensor& w, double eps) {
  const auto dim = x.size(-1), rows = x.numel() / std::max<std::int64_t>(dim, 1);
  if (fused(x) && fused(w)) {
    auto shape = x.sizes().vec();
    shape.back() = 1;
    auto y = at::empty_like(x), r = at::empty(shape, x.options());
    run(kernels().rms_forward,
        RmsForward{x.const_data_ptr<float>(), w.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                   r.mutable_data_ptr<float>(), dim, static_cast<float>(eps)},
        rows, dim);
    return {y, r};
  }
  const auto wide = x.to(wide_type(x));
  const auto r = wide.square().mean(-1, true).add_(eps).rsqrt_();
  return {(wide * r).mul_(w).to(x.scalar_type()), r};
}

void write_weight_gradient(Weight& w, const at::Tensor& x, const at::Tensor& r, const at::Tensor& dy) {
  if (fused(x) && fused(w.grad) && w.grad.is_contiguous()) {
    const auto dim = x.size(-1);
    run(kernels().rms_weight_gradient,
        RmsWeightGradient{x.const_data_ptr<float>(), r.const_data_ptr<float>(), dy.const_data_ptr<float>(),
                          w.grad.mutable_data_ptr<float>(), x.numel() / dim, dim, !take_fresh(w)},
        dim, r.numel());
  } else {
    write_gradient(w, (x.to(r.scalar_type()) * r).mul_(dy).reshape({-1, x.size(-1)}).sum(0));
  }
}

at::Tensor input_gradient(const at::Tensor& x, const at::Tensor& w, const at::Tensor& r, const at::Tensor& dy) {
  if (fused(x) && fused(w)) {
    const auto dim = x.size(-1);
    auto dx = at::empty_like(x);
    run(kernels().rms_backward,
        RmsBackward{x.const_data_ptr<float>(), w.const_data_ptr<float>(), r.const_data_ptr<float>(),
                    dy.const_data_ptr<float>(), dx.mutable_data_ptr<float>(), dim},
        r.numel(), dim);
    return dx;
  }
  const auto normal = x.to(r.scalar_type()) * r, dn = dy.to(r.scalar_type()) * w;
  return ((dn - normal * (dn * normal).mean(-1, true)).mul_(r)).to(x.scalar_type());
}

struct RmsNormFunction : Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& value, Weight* w, double eps) {
    ctx->saved_data["weight"] = handle(w);
    const auto [y, r] = normalise(x, value.contiguous(), eps);
    ctx->save_for_backward({x, r});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &r = saved[1], dy = grads[0].contiguous();
    auto& w = *weight_at(ctx, "weight");
    if (!w.frozen) write_weight_gradient(w, x, r, dy);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = input_gradient(x, w.value.detach().contiguous(), r, dy);
    return {dx, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, Weight& w, double eps) {
  check(x.dim() > 0 && x.size(-1) == w.value.numel(), "rms_norm: input ends in ", x.size(-1), ", the weight has ",
        w.value.numel());
  return RmsNormFunction::apply(x.contiguous(), w.value, &w, eps);
}

}  // namespace shale

// The operators without parameters that work position by position: rope and swiglu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>

#include "core/base/error.h"
#include "core/ops/function.h"
#include "core/ops/kernels.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos_sin, double direction) {
  const auto steps = x.size(1), heads = x.size(2), dim = x.size(3), half = dim / 2;
  auto y = at::empty_like(x);
  if (fused(x)) {
    const auto table = cos_sin.to(at::kFloat).contiguous();
    run(kernels().rotate,
        Rotation{x.const_data_ptr<float>(), table.const_data_ptr<float>(), y.mutable_data_ptr<float>(), steps, heads,
                 dim, static_cast<float>(direction)},
        x.size(0) * steps, heads * dim);
    return y;
  }
  const auto wide = x.to(wide_type(x)), table = cos_sin.to(wide.scalar_type()).unsqueeze(1);
  const auto c = table.narrow(-1, 0, half), s = table.narrow(-1, half, half) * direction;
  const auto p = wide.narrow(-1, 0, half), q = wide.narrow(-1, half, half);
  y.narrow(-1, 0, half).copy_(p * c - q * s);
  y.narrow(-1, half, half).copy_(q * c + p * s);
  return y;
}

struct RopeFunction : Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos_sin) {
    ctx->save_for_backward({cos_sin});
    return rotated(x, cos_sin, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {rotated(grads[0].contiguous(), ctx->get_saved_variables()[0], -1), {}};
  }
};

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) {
  if (fused(gate)) {
    auto y = at::empty_like(gate);
    run(kernels().swiglu_forward,
        SwigluForward{gate.const_data_ptr<float>(), up.const_data_ptr<float>(), y.mutable_data_ptr<float>()},
        gate.numel(), 4);
    return y;
  }
  const auto wide = gate.to(wide_type(gate));
  return at::sigmoid(wide).mul_(wide).mul_(up).to(gate.scalar_type());
}

struct SwigluFunction : Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    return gated(gate, up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    const auto dy = grads[0].contiguous();
    if (fused(gate)) {
      auto dgate = at::empty_like(gate), dup = at::empty_like(gate);
      run(kernels().swiglu_backward,
          SwigluBackward{gate.const_data_ptr<float>(), up.const_data_ptr<float>(), dy.const_data_ptr<float>(),
                         dgate.mutable_data_ptr<float>(), dup.mutable_data_ptr<float>()},
          gate.numel(), 6);
      return {dgate, dup};
    }
    const auto wide = gate.to(wide_type(gate)), d = dy.to(wide.scalar_type());
    const auto sigmoid = at::sigmoid(wide), silu = wide * sigmoid;
    return {(d * up).mul_(sigmoid + silu * (1 - sigmoid)).to(gate.scalar_type()), (d * silu).to(gate.scalar_type())};
  }
};

}  // namespace

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos_sin) {
  check(x.dim() == 4 && x.size(3) % 2 == 0 && cos_sin.dim() == 2 && cos_sin.size(0) == x.size(1) &&
            cos_sin.size(1) == x.size(3),
        "rope: x ", x.sizes(), " does not fit the table ", cos_sin.sizes());
  return RopeFunction::apply(x.contiguous(), cos_sin);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  check(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "swiglu: gate ", gate.sizes(), " and up ",
        up.sizes(), " differ");
  return SwigluFunction::apply(gate.contiguous(), up.contiguous());
}

}  // namespace shale

// The operators whose parameter is a matrix: linear and embedding.
#include <ATen/ops/_unique2.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/zeros.h>

#include "core/base/error.h"
#include "core/ops/function.h"
#include "core/ops/kernels.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor multiply(const at::Tensor& x, const Weight& w, const Weight* bias) {
  auto shape = x.sizes().vec();
  shape.back() = w.value.size(0);
  auto y = product(rows_of(x), w.value.detach().t());
  if (bias) y.add_(bias->value.detach());
  return y.view(shape);
}

struct LinearFunction : Function<LinearFunction> {
  // The values are arguments only so that the graph knows whether anything here wants a gradient.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor&,
                            const std::optional<at::Tensor>&, std::pair<Weight*, Weight*> weights) {
    const auto [w, bias] = weights;
    ctx->saved_data["weight"] = handle(w);
    ctx->saved_data["bias"] = handle(bias);
    ctx->save_for_backward({x});
    return multiply(x, *w, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto x = ctx->get_saved_variables()[0];
    Weight *w = weight_at(ctx, "weight"), *bias = weight_at(ctx, "bias");
    const auto dy = rows_of(grads[0]);
    if (!w->frozen) write_product(*w, dy.t(), rows_of(x));
    if (bias && !bias->frozen) write_gradient(*bias, dy.sum(0, false, wide_type(dy)));
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = product(dy, w->value.detach()).view(x.sizes());
    return {dx, {}, {}, {}};
  }
};

void check_ids(const at::Tensor& ids, std::int64_t vocabulary) {
  if (!ids.is_cpu()) return;  // reading them back would stall the device, whose own kernel checks
  const auto* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i)
    if (id[i] < 0 || id[i] >= vocabulary)
      fail(Code::input, "token ", id[i], " at position ", i, " of the batch is outside the vocabulary of ", vocabulary,
           " tokens; check that the data were made with this model's tokenizer");
}

// Tokens repeat within a batch: their rows are summed in a wide type first, so narrow gradients round once.
at::Tensor sums_by_token(const at::Tensor& positions, const at::Tensor& dy, std::int64_t tokens) {
  auto sums = at::zeros({tokens, dy.size(1)}, dy.options().dtype(wide_type(dy)));
  const auto rows = dy.to(sums.scalar_type());
  if (dy.is_cpu())
    sums.index_add_(0, positions, rows);
  else
    sums.index_put_({positions}, rows, true);  // sorts, and so adds in a fixed order
  return sums;
}

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& value, const at::Tensor& ids, Weight* w) {
    ctx->saved_data["weight"] = handle(w);
    ctx->save_for_backward({ids});
    return at::embedding(value, ids);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto& w = *weight_at(ctx, "weight");
    const auto ids = ctx->get_saved_variables()[0].flatten();
    const auto dy = rows_of(grads[0]).contiguous();
    if (take_fresh(w)) w.grad.zero_();
    if (fused(dy) && fused(w.grad) && w.grad.is_contiguous()) {
      run(kernels().add_rows,
          AddRows{ids.const_data_ptr<std::int64_t>(), dy.const_data_ptr<float>(), w.grad.mutable_data_ptr<float>(),
                  ids.numel(), dy.size(1)},
          dy.size(1), ids.numel());
    } else {
      const auto [tokens, positions, counts] = at::_unique2(ids, true, true);
      w.grad.index_add_(0, tokens, sums_by_token(positions, dy, tokens.numel()).to(w.grad.scalar_type()));
    }
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Weight& w, Weight* bias) {
  check(x.dim() > 0 && x.size(-1) == w.value.size(1), "linear: input ends in ", x.size(-1), ", the weight takes ",
        w.value.size(1));
  std::optional<at::Tensor> bias_value;
  if (bias) bias_value = bias->value;
  return LinearFunction::apply(x, w.value, bias_value, std::pair(&w, bias));
}

at::Tensor embedding(const at::Tensor& ids, Weight& w) {
  const auto tokens = ids.contiguous();
  check_ids(tokens, w.value.size(0));
  if (w.frozen) return at::embedding(w.value.detach(), tokens);
  return EmbeddingFunction::apply(w.value, tokens, &w);
}

}  // namespace shale

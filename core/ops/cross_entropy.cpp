#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include "core/base/error.h"
#include "core/ops/function.h"
#include "core/ops/kernels.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Summed {
  at::Tensor loss;
  at::Tensor max, sum;  // per row, of the fused loops; otherwise max holds log(sum(exp))
};

// logits: wide, contiguous. Rows are added in float64 in their order, whatever thread computed them.
Summed sum_fused(const at::Tensor& logits, const at::Tensor& targets) {
  const auto rows = logits.size(0), vocabulary = logits.size(1);
  const auto max = at::empty({rows}, logits.options()), sum = at::empty({rows}, logits.options());
  const auto* x = logits.const_data_ptr<float>();
  run(kernels().softmax_statistics,
      SoftmaxStatistics{x, max.mutable_data_ptr<float>(), sum.mutable_data_ptr<float>(), vocabulary}, rows,
      4 * vocabulary);
  const auto *m = max.const_data_ptr<float>(), *s = sum.const_data_ptr<float>();
  const auto* target = targets.const_data_ptr<std::int64_t>();
  double loss = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    if (target[i] != kIgnored) loss += m[i] + std::log(static_cast<double>(s[i])) - x[i * vocabulary + target[i]];
  return {at::scalar_tensor(loss, logits.options()), max, sum};
}

Summed sum_plain(const at::Tensor& logits, const at::Tensor& targets) {
  const auto lse = at::logsumexp(logits, {1});
  const auto hit = logits.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  const auto losses = (lse - hit).masked_fill(targets == kIgnored, 0);
  return {losses.sum(at::kDouble).to(logits.scalar_type()), lse, {}};
}

at::Tensor gradient_plain(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                          const at::Tensor& scale) {
  auto d = (logits - lse.unsqueeze(1)).exp_();
  const auto index = targets.clamp_min(0).unsqueeze(1);
  d.scatter_(1, index, d.gather(1, index) - 1);
  return d.masked_fill_((targets == kIgnored).unsqueeze(1), 0).mul_(scale);
}

void gradient_fused(const at::Tensor& logits, const at::Tensor& targets, const Summed& s, float scale) {
  run(kernels().softmax_backward,
      SoftmaxBackward{logits.mutable_data_ptr<float>(), s.max.const_data_ptr<float>(), s.sum.const_data_ptr<float>(),
                      targets.const_data_ptr<std::int64_t>(), logits.size(1), scale},
      logits.size(0), 4 * logits.size(1));
}

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets) {
    const auto wide = logits.to(wide_type(logits));
    const auto s = fused(wide) ? sum_fused(wide, targets) : sum_plain(wide, targets);
    ctx->save_for_backward({logits, targets, s.max, s.sum});
    return s.loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &logits = saved[0], &targets = saved[1];
    const auto wide = logits.to(wide_type(logits)).detach();
    if (!fused(wide)) return {gradient_plain(wide, targets, saved[2], grads[0]).to(logits.scalar_type()), {}};
    gradient_fused(wide, targets, {{}, saved[2], saved[3]}, grads[0].item<float>());
    return {wide.to(logits.scalar_type()), {}};
  }
};

void check_targets(const at::Tensor& targets, std::int64_t vocabulary) {
  if (!targets.is_cpu()) return;  // reading them back would stall the device, whose own kernel checks
  const auto* target = targets.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i)
    if (target[i] != kIgnored && (target[i] < 0 || target[i] >= vocabulary))
      fail(Code::input, "target ", target[i], " at position ", i, " of the batch is outside the vocabulary of ",
           vocabulary, " tokens; check that the data were made with this model's tokenizer");
}

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  check(logits.dim() == 2 && targets.dim() == 1 && logits.size(0) == targets.size(0), "cross_entropy_sum: logits ",
        logits.sizes(), " do not fit targets ", targets.sizes());
  const auto wanted = targets.contiguous();
  check_targets(wanted, logits.size(1));
  return CrossEntropyFunction::apply(logits.contiguous(), wanted);
}

}  // namespace shale

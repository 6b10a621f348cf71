#include "core/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "core/base/error.h"
#include "core/optim/kernels.h"

namespace shale {
namespace {

constexpr std::int64_t kGrain = 1 << 16;  // elements a thread takes at least

template <class T>
AdamWArrays<T> arrays(const Shard& s, std::int64_t begin, std::int64_t n) {
  return {s.master.data_ptr<T>() + begin, s.grad.const_data_ptr<T>() + begin, s.exp_avg.data_ptr<T>() + begin,
          s.exp_avg_sq.data_ptr<T>() + begin, n};
}

void on_cpu(const Shard& s, std::int64_t begin, std::int64_t n, const AdamWNumbers& h) {
  const auto& k = optim_kernels();
  at::parallel_for(0, n, kGrain, [&](std::int64_t from, std::int64_t to) {
    if (s.master.scalar_type() == at::kDouble)
      k.adamw_f64(arrays<double>(s, begin + from, to - from), h);
    else
      k.adamw_f32(arrays<float>(s, begin + from, to - from), h);
  });
}

struct DeviceStep {
  double lr, decay, grad_scale;
  std::int64_t update;
};

// In parts, for the scaled gradient is a copy: _fused_adamw_'s own grad_scale divides, and writes the quotient back.
void on_device(const Shard& s, std::int64_t begin, std::int64_t n, const AdamWOptions& o, const DeviceStep& d) {
  constexpr std::int64_t kPart = 1 << 24;
  std::vector<at::Tensor> steps{at::full({}, static_cast<double>(d.update), s.master.options().dtype(at::kFloat))};
  for (std::int64_t i = 0; i < n; i += kPart) {
    const auto part = [&](const at::Tensor& t) {
      return std::vector<at::Tensor>{t.narrow(0, begin + i, std::min(kPart, n - i))};
    };
    auto master = part(s.master), grad = part(s.grad), m = part(s.exp_avg), v = part(s.exp_avg_sq);
    if (d.grad_scale != 1) grad[0] = grad[0] * d.grad_scale;
    at::_fused_adamw_(master, grad, m, v, {}, steps, d.lr, o.beta1, o.beta2, d.decay, o.eps, false, false);
  }
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, const std::vector<std::string>& trainable) : options_(options) {
  for (auto& name : trainable) updates_[name] = 0;
}

void AdamW::step(std::deque<Shard>& shards, double lr, double grad_scale) {
  for (auto& [name, t] : updates_) ++t;
  for (auto& s : shards) {
    if (!s.grad.defined()) continue;
    for (auto& piece : s.pieces) {
      const auto& p = *piece.parameter;
      const auto t = updates_.at(p.name);
      const bool decays = options_.decay_norms || !(p.role & (kNorm | kBias));
      const double wd = decays ? options_.weight_decay : 0;
      if (s.master.is_cpu()) {
        const AdamWNumbers h{options_.beta1, options_.beta2,
                             options_.eps,   lr / (1 - std::pow(options_.beta1, static_cast<double>(t))),
                             1 - lr * wd,    1 / std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(t))),
                             grad_scale};
        on_cpu(s, piece.range.shard_begin, piece.range.count, h);
      } else {
        on_device(s, piece.range.shard_begin, piece.range.count, options_, {lr, wd, grad_scale, t});
      }
    }
  }
}

}  // namespace shale

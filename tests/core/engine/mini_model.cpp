#include "tests/core/engine/mini_model.h"

#include <algorithm>
#include <deque>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/text.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

constexpr std::int64_t kVocabulary = 13, kDim = 6, kHidden = 7, kLength = 5, kRows = 2;

at::Tensor layer(const ModelInput&, std::span<Weight> w, const at::Tensor& x) {
  const auto n = rms_norm(x, w[0], 1e-5);
  return x + linear(swiglu(linear(n, w[1]), linear(n, w[2])), w[3]);
}

// Ranks whose batches differ in it take different branches, and some have no gradient for any parameter of the unit.
at::Tensor layer_or_nothing(const ModelInput& in, std::span<Weight> w, const at::Tensor& x) {
  return in.targets.flatten()[0].item<std::int64_t>() == kIgnored ? x : layer(in, w, x);
}

at::Tensor head(const ModelInput& input, std::span<Weight> w, const at::Tensor& x) {
  const auto logits = linear(rms_norm(x, w[0], 1e-5), w[1]);
  if (!input.targets.defined()) return logits;
  return cross_entropy_sum(logits.flatten(0, 1), input.targets.flatten());
}

void add_unit(Model& m, UnitInfo unit, UnitForward forward) {
  m.info.units.push_back(std::move(unit));
  m.forward.push_back(std::move(forward));
}

}  // namespace

Model mini_model(const MiniOptions& o) {
  Model m;
  add_unit(m, {"embedding", UnitKind::embedding, {{"embed", {kVocabulary, kDim}, kEmbedding}}, {}},
           [](const ModelInput& in, std::span<Weight> w, const at::Tensor&) { return embedding(in.tokens, w[0]); });
  for (int i = 0; i < o.layers; ++i) {
    const auto p = shale::str("layer", i, ".");
    add_unit(m,
             {shale::str("layer", i),
              UnitKind::layer,
              {{p + "norm", {kDim}, kNorm},
               {p + "gate", {kHidden, kDim}, kLinear},
               {p + "up", {kHidden, kDim}, kLinear},
               {p + "down", {kDim, kHidden}, kLinear}},
              {}},
             o.branching && i == 1 ? layer_or_nothing : layer);
  }
  if (o.unused) m.info.units[0].parameters.push_back({"spare", {kDim, 3}, kLinear});
  UnitInfo last{"head", UnitKind::head, {{"norm", {kDim}, kNorm}}, {}};
  if (o.tied)
    last.borrows = {"embed"};
  else
    last.parameters.push_back({"head", {kVocabulary, kDim}, kHead});
  add_unit(m, last, head);
  if (o.reused) {
    for (int i = 0; i <= o.layers; ++i) m.info.order.push_back(i);
    m.info.order.push_back(1);
    m.info.order.push_back(o.layers + 1);
  }
  for (auto& unit : m.info.units)
    for (auto& p : unit.parameters) p.frozen = std::count(o.frozen.begin(), o.frozen.end(), p.name) > 0;
  return m;
}

Batch mini_batch(std::int64_t index) {
  const auto i = at::arange(index * 17, index * 17 + kRows * kLength, at::kLong).view({kRows, kLength});
  Batch b;
  b.tokens = (i * i + 3 * i) % kVocabulary;
  b.targets = (i * 5 + 1) % kVocabulary;
  // Batches with different numbers of targets: a mean of means would be wrong.
  b.targets.flatten().narrow(0, 0, index % 4).fill_(kIgnored);
  b.n_targets = kRows * kLength - index % 4;
  return b;
}

Parameters mini_weights(const Model& m) {
  Parameters out;
  std::int64_t salt = 0;
  for (auto& unit : m.info.units)
    for (auto& p : unit.parameters) {
      const auto i = at::arange(numel(p.shape), at::kDouble) + static_cast<double>(1000 * ++salt);
      out[p.name] = (i * 1.7).sin().mul(0.5).add(p.role & kNorm ? 1.0 : 0.0).view(p.shape);
    }
  return out;
}

DenseResult train_dense(const Model& m, int steps, int per_step, double lr) {
  DenseResult r;
  r.weights = mini_weights(m);
  std::map<std::string, at::Tensor> grads;
  for (auto& [name, w] : r.weights) grads[name] = at::zeros_like(w);
  for (int step = 0; step < steps; ++step) {
    std::map<std::string, bool> fresh;
    for (auto& [name, w] : r.weights) grads[name].zero_(), fresh[name] = true;
    double loss = 0, tokens = 0;
    for (int k = 0; k < per_step; ++k) {
      const auto batch = mini_batch(step * per_step + k);
      std::deque<std::vector<Weight>> kept;
      at::Tensor h;
      for (int u : m.info.run_order()) {
        auto& weights = kept.emplace_back();
        const auto add = [&](const std::string& name, bool frozen) {
          auto leaf = r.weights[name].detach().clone().set_requires_grad(!frozen);
          weights.push_back({leaf, frozen ? at::Tensor() : grads[name], frozen, &fresh[name]});
        };
        for (auto& p : m.info.units[u].parameters) add(p.name, p.frozen);
        for (auto& name : m.info.units[u].borrows) {
          bool frozen = false;
          for (auto& p : m.info.units[0].parameters) frozen |= p.name == name && p.frozen;
          add(name, frozen);
        }
        h = m.forward[u]({batch.tokens, batch.targets}, weights, h);
      }
      loss += h.item<double>(), tokens += static_cast<double>(batch.n_targets);
      torch::autograd::backward({h}, {});
    }
    r.losses.push_back(loss / tokens);
    at::NoGradGuard off;
    for (auto& unit : m.info.units)
      for (auto& p : unit.parameters)
        if (!p.frozen) r.weights[p.name].sub_(grads[p.name] * (lr / tokens));
  }
  return r;
}

}  // namespace shale

// Every operator, forward and gradients, against float64 on the CPU.
#include <deque>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/ops/ops.h"
#include "tests/gpu/check.h"

namespace shale {
namespace {

using Tensors = std::vector<at::Tensor>;
using Shapes = std::vector<std::vector<std::int64_t>>;

struct Operator {
  std::string name;
  Shapes inputs, weights;
  std::function<at::Tensor(const Tensors& inputs, std::deque<Weight>& weights)> apply;
};

struct Kind {
  const char* name;
  at::ScalarType type;
  double tolerance;
};
constexpr Kind kKinds[] = {
    {"float64", at::kDouble, 1e-11}, {"float32", at::kFloat, 2e-5}, {"bfloat16", at::kBFloat16, 3e-2}};

constexpr std::int64_t kB = 2, kT = 24, kHeads = 4, kKv = 2, kDim = 16, kVocabulary = 40;

at::Tensor ids_on(at::Device device, bool with_ignored) {
  const auto i = at::arange(kB * kT, at::kLong);
  auto ids = (i * i + 3 * i) % kVocabulary;
  if (with_ignored) ids.narrow(0, 5, 3).fill_(kIgnored);
  return ids.to(device);
}

std::vector<Operator> operators() {
  return {
      {"linear", {{kB, kT, 32}}, {{48, 32}, {48}}, [](auto& x, auto& w) { return linear(x[0], w[0], &w[1]); }},
      {"rms_norm", {{kB, kT, 64}}, {{64}}, [](auto& x, auto& w) { return rms_norm(x[0], w[0], 1e-5); }},
      {"embedding",
       {},
       {{kVocabulary, 32}},
       [](auto&, auto& w) {
         return embedding(ids_on(w[0].value.device(), false).view({kB, kT}), w[0]);
       }},
      {"rope",
       {{kB, kT, kHeads, kDim}},
       {},
       [](auto& x, auto&) {
         const auto wide = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
         return rope(x[0], numbers({kT, kDim}, 9, x[0].options().dtype(wide)));
       }},
      {"attention",
       {{kB, kT, kHeads, kDim}, {kB, kT, kKv, kDim}, {kB, kT, kKv, kDim}},
       {},
       [](auto& x, auto&) { return attention(x[0], x[1], x[2]); }},
      {"swiglu", {{kB, kT, 48}, {kB, kT, 48}}, {}, [](auto& x, auto&) { return swiglu(x[0], x[1]); }},
      {"cross_entropy",
       {{kB * kT, kVocabulary}},
       {},
       [](auto& x, auto&) { return cross_entropy_sum(x[0] * 1, ids_on(x[0].device(), true)); }},
  };
}

// Output, gradients of inputs, gradients of weights. Backward runs twice: the second gradient of a weight is added to
// the first. All numbers are first rounded to `type`, so that every device starts from the same ones.
Tensors evaluate(const Operator& op, at::Device device, at::ScalarType type, at::ScalarType compute) {
  const auto start = [&](at::IntArrayRef shape, int salt) {
    return numbers(shape, salt, at::TensorOptions(type)).to(compute).to(device);
  };
  Tensors inputs;
  std::deque<Weight> weights;
  std::deque<bool> fresh;
  int salt = 1;
  for (auto& shape : op.inputs) inputs.push_back(start(shape, salt++).set_requires_grad(true));
  for (auto& shape : op.weights) {
    auto& w = weights.emplace_back();
    w.value = start(shape, salt++).set_requires_grad(true);
    w.grad = at::zeros(shape, w.value.options().dtype(compute == at::kDouble ? at::kDouble : at::kFloat));
    w.grad.fill_(7);  // what an earlier tenant left
    w.fresh = &fresh.emplace_back(true);
  }
  at::Tensor out;
  for (int i = 0; i < 2; ++i) {
    out = op.apply(inputs, weights);
    const auto seed = out.dim() == 0 ? at::Tensor() : start(out.sizes(), 77);
    torch::autograd::backward({out}, {seed});
  }
  Tensors results{out};
  for (auto& x : inputs) results.push_back(x.grad());
  for (auto& w : weights) results.push_back(w.grad);
  return results;
}

void check_operator(Bench& b, const Operator& op, const Kind& kind) {
  const auto found = evaluate(op, b.on(), kind.type, kind.type);
  const auto wanted = evaluate(op, at::kCPU, kind.type, at::kDouble);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = error_of(found[i], wanted[i]);
    expect(error <= kind.tolerance, i == 0 ? str("the result") : str("gradient ", i), " is off by ", error,
           " of its largest number, ", kind.tolerance, " is allowed");
  }
}

}  // namespace

void add_ops_checks(Checks& checks) {
  for (auto& op : operators())
    for (auto& kind : kKinds)
      checks.push_back({str("ops.", op.name, ".", kind.name), Needs::nothing,
                        [op, kind](Bench& b) { check_operator(b, op, kind); }});
}

}  // namespace shale

// What the operators' own autograd functions have in common.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/ops/weight.h"

namespace shale {

// A Weight travels through a graph as an integer; it outlives the graph by contract.
inline std::int64_t handle(Weight* w) { return reinterpret_cast<std::int64_t>(w); }
inline Weight* weight_at(torch::autograd::AutogradContext* ctx, const char* key) {
  return reinterpret_cast<Weight*>(ctx->saved_data[key].toInt());
}

// Statistics and sums: float64 for float64, else float32.
inline at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline bool fused(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

// Runs kernel(args, begin, end) over [0, n) on the threads of this rank; `cost` is the number of floats per item.
template <class Args>
void run(void (*kernel)(const Args&, std::int64_t, std::int64_t), const Args& args, std::int64_t n, std::int64_t cost) {
  constexpr std::int64_t kFloatsPerThread = 1 << 14;  // below this a thread costs more than it saves
  const auto grain = std::max<std::int64_t>(1, kFloatsPerThread / std::max<std::int64_t>(1, cost));
  at::parallel_for(0, n, grain, [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
}

// dw into w.grad: put there by the first writer of a backward, added by the others.
void write_gradient(Weight& w, const at::Tensor& dw);
// a times b, likewise, without a temporary where grad has the type of the product.
void write_product(Weight& w, const at::Tensor& a, const at::Tensor& b);
// True once per backward: the caller then overwrites w.grad.
bool take_fresh(Weight& w);

// a [m, k] times b [k, n], sums in float32 or wider, rounded once to the type of a.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace shale

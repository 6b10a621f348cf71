// The operators of decoder models, each with its own backward. CPU float32 runs on fused kernels, everything else
// (float64, bfloat16, CUDA) on ATen. Statistics and sums are float32 or wider whatever the dtype. Call them on the
// thread that runs the unit; gradients follow the mode of autograd at the call (no graph under NoGrad).
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "core/ops/weight.h"

namespace shale {

// x [..., in] times w [out, in] transposed -> [..., out]; bias may be null, else [out].
at::Tensor linear(const at::Tensor& x, Weight& w, Weight* bias = nullptr);

// x * rsqrt(mean(x^2) + eps) * w over the last dimension (Zhang & Sennrich 2019); w [dim].
at::Tensor rms_norm(const at::Tensor& x, Weight& w, double eps);

// Rows of w [vocabulary, dim] for ids [B, T] (int64) -> [B, T, dim]. Ids are checked against the vocabulary.
at::Tensor embedding(const at::Tensor& ids, Weight& w);

// Rotates pairs (i, i + D/2) of each head: x [B, T, heads, D]; cos_sin [T, D] float32 or float64, cos in the first
// half of a row, sin in the second (Su et al. 2021, in the layout of Hugging Face's Llama).
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos_sin);

// Causal attention softmax(q k' / sqrt(D)) v with grouped key/value heads: q [B, T, H, D], k and v [B, T, KV, D], H a
// multiple of KV -> [B, T, H * D].
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// silu(gate) * up, elementwise (Shazeer 2020).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Sum over all positions of -log softmax(logits)[target]: logits [N, vocabulary], targets [N] int64, kIgnored ones
// count nothing. A scalar, float32 or float64. May overwrite logits in its backward.
inline constexpr std::int64_t kIgnored = -100;
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace shale

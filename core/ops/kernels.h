// The fused float32 loops of the CPU operators, compiled for several instruction sets. Every kernel works on a range of
// rows, elements or columns, and what it computes for one of them does not depend on the range: threads may split the
// work anywhere. Matrices are row-major and contiguous; no output overlaps an input unless said.
#pragma once

#include <cstdint>

namespace shale {

struct RmsForward {  // by rows: y = x r w with r = 1 / sqrt(mean(x^2) + eps)
  const float *x, *w;
  float *y, *r;  // r may be null
  std::int64_t dim;
  float eps;
};

struct RmsBackward {  // by rows: the gradient of x
  const float *x, *w, *r, *dy;
  float* dx;
  std::int64_t dim;
};

struct RmsWeightGradient {  // by columns: dw (+)= sum over rows of dy x r
  const float *x, *r, *dy;
  float* dw;
  std::int64_t rows, dim;
  bool add;
};

struct Rotation {  // by rows of heads x head_dim; row i stands at position i % steps
  const float *x, *cos_sin;
  float* y;
  std::int64_t steps, heads, head_dim;
  float direction;  // 1 rotates, -1 rotates back
};

struct SwigluForward {  // by elements
  const float *gate, *up;
  float* y;
};

struct SwigluBackward {  // by elements
  const float *gate, *up, *dy;
  float *dgate, *dup;
};

struct SoftmaxStatistics {  // by rows: max = the greatest logit, sum = sum(exp(logits - max))
  const float* logits;
  float *max, *sum;
  std::int64_t vocabulary;
};

struct SoftmaxBackward {  // by rows, in place: logits = scale (softmax - onehot(target)), 0 for a negative target
  float* logits;
  const float *max, *sum;
  const std::int64_t* targets;
  std::int64_t vocabulary;
  float scale;
};

struct AddRows {  // by columns: rows of dy onto the rows ids of sum, in order
  const std::int64_t* ids;
  const float* dy;
  float* sum;
  std::int64_t rows, dim;
};

struct Kernels {
  const char* name;
  void (*rms_forward)(const RmsForward&, std::int64_t begin, std::int64_t end);
  void (*rms_backward)(const RmsBackward&, std::int64_t begin, std::int64_t end);
  void (*rms_weight_gradient)(const RmsWeightGradient&, std::int64_t begin, std::int64_t end);
  void (*rotate)(const Rotation&, std::int64_t begin, std::int64_t end);
  void (*swiglu_forward)(const SwigluForward&, std::int64_t begin, std::int64_t end);
  void (*swiglu_backward)(const SwigluBackward&, std::int64_t begin, std::int64_t end);
  void (*softmax_statistics)(const SoftmaxStatistics&, std::int64_t begin, std::int64_t end);
  void (*softmax_backward)(const SoftmaxBackward&, std::int64_t begin, std::int64_t end);
  void (*add_rows)(const AddRows&, std::int64_t begin, std::int64_t end);
  void (*exponential)(const float* x, float* y, std::int64_t n);
};

const Kernels& base_kernels();  // any machine
const Kernels* avx2_kernels();  // null when this build or this machine has none
const Kernels& kernels();       // the fastest this machine runs

}  // namespace shale

// The loops themselves. Included by one file per instruction set, everything in an unnamed namespace; it uses no inline
// function of the library, since the linker could take the copy made for a newer machine.
#pragma once

#include <cstdint>

#include "core/ops/kernels.h"

namespace shale {
namespace {

using Index = std::int64_t;
constexpr Index kLanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));

inline Floats broadcast(float x) { return Floats{x, x, x, x, x, x, x, x}; }

// Up to eight floats; missing ones read as `fill` and are not written. One path for whole and partial vectors, so the
// place of an element in its range does not change its value.
inline Floats load(const float* from, Index n, float fill = 0.0f) {
  Floats v;
  if (n >= kLanes) {
    __builtin_memcpy(&v, from, sizeof(v));
  } else {
    v = broadcast(fill);
    for (Index i = 0; i < n; ++i) v[i] = from[i];
  }
  return v;
}

inline void store(float* to, const Floats& v, Index n) {
  if (n >= kLanes) {
    __builtin_memcpy(to, &v, sizeof(v));
  } else {
    for (Index i = 0; i < n; ++i) to[i] = v[i];
  }
}

inline float sum_lanes(const Floats& v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

// Long sums: eight lanes in float32 over 1024 elements, then float64. Term maps (position, count) to eight terms.
template <class Term>
inline double sum_of(Index n, const Term& term) {
  constexpr Index kBlock = 1024;
  double total = 0;
  for (Index b = 0; b < n; b += kBlock) {
    const Index end = b + kBlock < n ? b + kBlock : n;
    Floats even = broadcast(0), odd = broadcast(0);
    Index j = b;
    for (; j + 2 * kLanes <= end; j += 2 * kLanes) {
      even += term(j, kLanes);
      odd += term(j + kLanes, kLanes);
    }
    for (; j < end; j += kLanes) even += term(j, end - j);
    total += sum_lanes(even + odd);
  }
  return total;
}

// e^x, relative error about 2e-7 (argument reduction by Cody and Waite, polynomial of degree 6). Clamped to the normal
// numbers; NaN stays NaN.
inline Floats exponential(Floats x) {
  const Floats low = broadcast(-87.3f), high = broadcast(88.3f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats n = (x * 1.44269504f + magic) - magic;
  Floats r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Floats p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Ints bits = (__builtin_convertvector(n, Ints) + 127) << 23;
  Floats scale;
  __builtin_memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

void exponential_all(const float* x, float* y, Index n) {
  for (Index j = 0; j < n; j += kLanes) store(y + j, exponential(load(x + j, n - j)), n - j);
}

void rms_forward(const RmsForward& a, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    const float* x = a.x + i * a.dim;
    float* y = a.y + i * a.dim;
    const double squares = sum_of(a.dim, [&](Index j, Index n) {
      const Floats v = load(x + j, n);
      return v * v;
    });
    const float r = static_cast<float>(1.0 / __builtin_sqrt(squares / static_cast<double>(a.dim) + a.eps));
    if (a.r) a.r[i] = r;
    for (Index j = 0; j < a.dim; j += kLanes) {
      const Index n = a.dim - j;
      store(y + j, load(x + j, n) * r * load(a.w + j, n), n);
    }
  }
}

void rms_backward(const RmsBackward& a, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    const float *x = a.x + i * a.dim, *dy = a.dy + i * a.dim;
    float* dx = a.dx + i * a.dim;
    const double r = a.r[i];
    const double dot =
        sum_of(a.dim, [&](Index j, Index n) { return load(dy + j, n) * load(a.w + j, n) * load(x + j, n); });
    const auto c = static_cast<float>(dot * r * r * r / static_cast<double>(a.dim));
    const auto scale = static_cast<float>(r);
    for (Index j = 0; j < a.dim; j += kLanes) {
      const Index n = a.dim - j;
      store(dx + j, load(dy + j, n) * load(a.w + j, n) * scale - load(x + j, n) * c, n);
    }
  }
}

// 32 columns at a time: 64 rows in float32, then float64, so dw is as exact as the sums over a row.
void rms_weight_gradient(const RmsWeightGradient& a, Index begin, Index end) {
  constexpr Index kRows = 64, kVectors = 4, kColumns = kVectors * kLanes;
  for (Index j = begin; j < end; j += kColumns) {
    const Index n = end - j < kColumns ? end - j : kColumns;
    double total[kColumns] = {};
    for (Index b = 0; b < a.rows; b += kRows) {
      const Index last = b + kRows < a.rows ? b + kRows : a.rows;
      Floats sum[kVectors] = {};
      for (Index i = b; i < last; ++i) {
        const float *x = a.x + i * a.dim + j, *dy = a.dy + i * a.dim + j;
        for (Index k = 0; k < kVectors && k * kLanes < n; ++k)
          sum[k] += load(x + k * kLanes, n - k * kLanes) * a.r[i] * load(dy + k * kLanes, n - k * kLanes);
      }
      for (Index q = 0; q < n; ++q) total[q] += sum[q / kLanes][q % kLanes];
    }
    for (Index q = 0; q < n; ++q) {
      float& dw = a.dw[j + q];
      dw = static_cast<float>(a.add ? dw + total[q] : total[q]);
    }
  }
}

void rotate(const Rotation& a, Index begin, Index end) {
  const Index half = a.head_dim / 2, row = a.heads * a.head_dim;
  for (Index i = begin; i < end; ++i) {
    const float *c = a.cos_sin + i % a.steps * a.head_dim, *s = c + half;
    for (Index h = 0; h < a.heads; ++h) {
      const float* x = a.x + i * row + h * a.head_dim;
      float* y = a.y + i * row + h * a.head_dim;
      for (Index j = 0; j < half; j += kLanes) {
        const Index n = half - j;
        const Floats p = load(x + j, n), q = load(x + half + j, n);
        const Floats u = load(c + j, n), v = load(s + j, n) * a.direction;
        store(y + j, p * u - q * v, n);
        store(y + half + j, q * u + p * v, n);
      }
    }
  }
}

void swiglu_forward(const SwigluForward& a, Index begin, Index end) {
  for (Index j = begin; j < end; j += kLanes) {
    const Index n = end - j;
    const Floats gate = load(a.gate + j, n);
    store(a.y + j, gate / (1.0f + exponential(-gate)) * load(a.up + j, n), n);
  }
}

void swiglu_backward(const SwigluBackward& a, Index begin, Index end) {
  for (Index j = begin; j < end; j += kLanes) {
    const Index n = end - j;
    const Floats gate = load(a.gate + j, n), up = load(a.up + j, n), dy = load(a.dy + j, n);
    const Floats sigmoid = 1.0f / (1.0f + exponential(-gate)), silu = gate * sigmoid;
    store(a.dgate + j, dy * up * (sigmoid + silu * (1.0f - sigmoid)), n);
    store(a.dup + j, dy * silu, n);
  }
}

inline float max_of(const float* x, Index n) {
  Floats top = load(x, n, x[0]);
  for (Index j = kLanes; j < n; j += kLanes) {
    const Floats v = load(x + j, n - j, x[0]);
    top = v > top ? v : top;
  }
  float max = top[0];
  for (Index q = 1; q < kLanes; ++q) max = top[q] > max ? top[q] : max;
  return max;
}

void softmax_statistics(const SoftmaxStatistics& a, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    const float* x = a.logits + i * a.vocabulary;
    const float max = max_of(x, a.vocabulary);
    // Missing elements of the last vector count as e^-87, nothing beside the e^0 of the maximum.
    a.sum[i] = static_cast<float>(
        sum_of(a.vocabulary, [&](Index j, Index n) { return exponential(load(x + j, n, max - 1000.0f) - max); }));
    a.max[i] = max;
  }
}

void softmax_backward(const SoftmaxBackward& a, Index begin, Index end) {
  for (Index i = begin; i < end; ++i) {
    float* x = a.logits + i * a.vocabulary;
    const Index target = a.targets[i];
    const float max = a.max[i], scale = target < 0 ? 0.0f : a.scale / a.sum[i];
    for (Index j = 0; j < a.vocabulary; j += kLanes) {
      const Index n = a.vocabulary - j;
      store(x + j, target < 0 ? broadcast(0) : exponential(load(x + j, n) - max) * scale, n);
    }
    if (target >= 0) x[target] -= a.scale;
  }
}

void add_rows(const AddRows& a, Index begin, Index end) {
  for (Index i = 0; i < a.rows; ++i) {
    float* sum = a.sum + a.ids[i] * a.dim;
    const float* dy = a.dy + i * a.dim;
    for (Index j = begin; j < end; j += kLanes) {
      const Index n = end - j;
      store(sum + j, load(sum + j, n) + load(dy + j, n), n);
    }
  }
}

constexpr Kernels make_table(const char* name) {
  return {name,           rms_forward,     rms_backward,       rms_weight_gradient, rotate,
          swiglu_forward, swiglu_backward, softmax_statistics, softmax_backward,    add_rows,
          exponential_all};
}

}  // namespace
}  // namespace shale

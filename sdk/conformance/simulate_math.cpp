// shale.math/1 in plain loops.
#include <cmath>
#include <cstring>

#include "simulate.h"

namespace shale::conform {
namespace {

struct View {
  explicit View(const shale_tensor& of) : t(of) {}
  double get(std::uint64_t k) const { return load(t.dtype, t.data, k); }
  double get(std::uint64_t row, std::uint64_t column) const { return get(row * columns() + column); }
  void set(std::uint64_t k, double value) const { store(t.dtype, t.data, k, value); }
  void set(std::uint64_t row, std::uint64_t column, double value) const { set(row * columns() + column, value); }
  std::uint64_t rows() const { return static_cast<std::uint64_t>(t.shape[0]); }
  std::uint64_t columns() const { return static_cast<std::uint64_t>(t.shape[1]); }

  const shale_tensor& t;
};

Answer wrong(const char* what, const std::string& text) { return {SHALE_BAD_ARGUMENT, what, text}; }

Answer check_operand(const char* name, const shale_tensor& t, bool write) {
  if (auto text = problem(t, write); !text.empty()) return wrong(name, text);
  return is_float(t.dtype) ? Answer{} : wrong(name, "must be of a float type");
}

// Elementwise operands: as many elements, and the same memory or apart.
Answer check_pair(const char* name, const shale_tensor& x, const shale_tensor& y) {
  if (count(x) != count(y)) return wrong(name, "the operands differ in length");
  const bool in_place = x.data == y.data && x.dtype == y.dtype;
  return overlap(x, y) && !in_place ? wrong(name, "the operands overlap") : Answer{};
}

double in_float(bool wide, double value) { return wide ? value : static_cast<double>(static_cast<float>(value)); }

shale_status* copy(void* ctx, shale_lane* lane, const shale_tensor* dst, const shale_tensor* src) {
  return serve(ctx, lane, "copy", [&](Lane&) -> Answer {
    if (auto text = problem(*dst, true); !text.empty()) return wrong("dst", text);
    if (auto text = problem(*src, false); !text.empty()) return wrong("src", text);
    if (Answer a = check_pair("copy", *dst, *src); a.code != 0) return a;
    if (dst->dtype == src->dtype && count(*dst) != 0) std::memmove(dst->data, src->data, bytes(*src));
    if (dst->dtype == src->dtype) return {};
    if (!is_float(dst->dtype) || !is_number(src->dtype)) return wrong("dst", "must be of a float type");
    const View to(*dst), from(*src);
    for (std::uint64_t k = 0; k < count(*dst); ++k) to.set(k, from.get(k));
    return {};
  });
}

constexpr auto axpby = [](void* ctx, shale_lane* lane, double a, const shale_tensor* x, double b,
                          const shale_tensor* y) -> shale_status* {
  return serve(ctx, lane, "axpby", [&](Lane&) -> Answer {
    if (Answer answer = check_operand("x", *x, false); answer.code != 0) return answer;
    if (Answer answer = check_operand("y", *y, true); answer.code != 0) return answer;
    if (Answer answer = check_pair("x", *x, *y); answer.code != 0) return answer;
    const bool wide = x->dtype == SHALE_F64 || y->dtype == SHALE_F64;
    const View from(*x), to(*y);
    for (std::uint64_t k = 0; k < count(*y); ++k) {
      const double left = a == 0 ? 0 : in_float(wide, in_float(wide, a) * from.get(k));
      const double right = b == 0 ? 0 : in_float(wide, in_float(wide, b) * to.get(k));
      to.set(k, left + right);
    }
    return {};
  });
};

constexpr auto matmul = [](void* ctx, shale_lane* lane, std::uint32_t transpose, double alpha, const shale_tensor* a,
                           const shale_tensor* b, double beta, const shale_tensor* c) -> shale_status* {
  return serve(ctx, lane, "matmul", [&](Lane&) -> Answer {
    for (auto* t : {a, b, c}) {
      if (Answer answer = check_operand("matmul", *t, t == c); answer.code != 0) return answer;
      if (t->ndim != 2) return wrong("matmul", "an operand is not a matrix");
    }
    const View left(*a), right(*b), to(*c);
    const bool turn_a = (transpose & 1) != 0, turn_b = (transpose & 2) != 0;
    const auto inner = turn_a ? left.rows() : left.columns();
    if ((turn_a ? left.columns() : left.rows()) != to.rows() || (turn_b ? right.columns() : right.rows()) != inner ||
        (turn_b ? right.rows() : right.columns()) != to.columns())
      return wrong("matmul", "the shapes do not fit");
    for (std::uint64_t i = 0; i < to.rows(); ++i)
      for (std::uint64_t j = 0; j < to.columns(); ++j) {
        double sum = 0;
        for (std::uint64_t k = 0; alpha != 0 && k < inner; ++k)
          sum += (turn_a ? left.get(k, i) : left.get(i, k)) * (turn_b ? right.get(j, k) : right.get(k, j));
        to.set(i, j, (alpha == 0 ? 0 : alpha * sum) + (beta == 0 ? 0 : beta * to.get(i, j)));
      }
    return {};
  });
};

double dot(const View& a, std::uint64_t one, std::uint64_t two) {
  double sum = 0;
  for (std::uint64_t i = 0; i < a.rows(); ++i) sum += a.get(i, one) * a.get(i, two);
  return sum;
}

shale_status* orthogonalise(void* ctx, shale_lane* lane, const shale_tensor* t) {
  return serve(ctx, lane, "orthogonalise", [&](Lane&) -> Answer {
    if (Answer answer = check_operand("orthogonalise", *t, true); answer.code != 0) return answer;
    if (t->ndim != 2 || t->shape[1] > 64) return wrong("orthogonalise", "takes a matrix of at most 64 columns");
    const View a(*t);
    for (std::uint64_t j = 0; j < a.columns(); ++j) {
      const double before = dot(a, j, j);
      for (std::uint64_t k = 0; k < j; ++k) {
        const double along = dot(a, k, j);
        for (std::uint64_t i = 0; i < a.rows(); ++i) a.set(i, j, a.get(i, j) - along * a.get(i, k));
      }
      const double after = dot(a, j, j);
      const bool dependent = after <= 1e-10 * before;  // false for NaN, which must not get lost
      for (std::uint64_t i = 0; i < a.rows(); ++i) a.set(i, j, dependent ? 0 : a.get(i, j) / std::sqrt(after));
    }
    return {};
  });
}

}  // namespace

shale_math math_service(Rank* r) { return {sizeof(shale_math), 0, r, copy, axpby, matmul, orthogonalise}; }

}  // namespace shale::conform

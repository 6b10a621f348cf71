// shale.math/1 in plain loops.
#include <cmath>

#include "simulate.h"

namespace shale::conform {
namespace {

struct View {  // element k in row-major order, whatever the strides
  explicit View(const shale_tensor& of) : t(of), plain(contiguous(of)) {}
  std::uint64_t place(std::uint64_t k) const {
    if (plain) return k;
    std::uint64_t offset = 0;
    for (std::uint32_t d = t.ndim; d-- > 0; k /= static_cast<std::uint64_t>(t.shape[d]))
      offset += k % static_cast<std::uint64_t>(t.shape[d]) * static_cast<std::uint64_t>(t.strides[d]);
    return offset;
  }
  double get(std::uint64_t k) const { return load(t.dtype, t.data, place(k)); }
  double get(std::uint64_t row, std::uint64_t column) const { return get(row * columns() + column); }
  void set(std::uint64_t k, double value) const { store(t.dtype, t.data, place(k), value); }
  void set(std::uint64_t row, std::uint64_t column, double value) const { set(row * columns() + column, value); }
  std::uint64_t rows() const { return static_cast<std::uint64_t>(t.shape[0]); }
  std::uint64_t columns() const { return static_cast<std::uint64_t>(t.shape[1]); }

  const shale_tensor& t;
  bool plain;
};

Answer wrong(const char* what, const std::string& text) { return {SHALE_BAD_ARGUMENT, what, text}; }

Answer check_operand(const char* what, const shale_tensor& t) {
  if (!is_number(t.dtype)) return wrong(what, "has a dtype this host does not compute with");
  if (t.device_type != SHALE_DEVICE_CPU) return wrong(what, "is not of the lane's device");
  if (t.ndim > SHALE_MAX_DIMS) return wrong(what, "has too many dimensions");
  if (t.data == nullptr && count(t) != 0) return wrong(what, "has no memory");
  return {};
}

double in_float(bool wide, double value) { return wide ? value : static_cast<double>(static_cast<float>(value)); }

shale_status* copy(void* ctx, shale_lane* lane, const shale_tensor* dst, const shale_tensor* src) {
  return serve(ctx, lane, "copy", [&](Lane&) -> Answer {
    for (auto* t : {dst, src})
      if (Answer a = check_operand("copy", *t); a.code != 0) return a;
    if (count(*dst) != count(*src)) return wrong("copy", "the operands differ in length");
    const View to(*dst), from(*src);
    for (std::uint64_t k = 0; k < count(*dst); ++k) to.set(k, from.get(k));
    return {};
  });
}

constexpr auto axpby = [](void* ctx, shale_lane* lane, double a, const shale_tensor* x, double b,
                          const shale_tensor* y) -> shale_status* {
  return serve(ctx, lane, "axpby", [&](Lane&) -> Answer {
    for (auto* t : {x, y})
      if (Answer answer = check_operand("axpby", *t); answer.code != 0) return answer;
    if (count(*x) != count(*y)) return wrong("axpby", "the operands differ in length");
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
      if (Answer answer = check_operand("matmul", *t); answer.code != 0) return answer;
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
    if (Answer answer = check_operand("orthogonalise", *t); answer.code != 0) return answer;
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

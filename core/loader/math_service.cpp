// shale.math/1 on ATen: fp32, or fp64 when one operand is, in tiles where operands differ in dtype.
#include <algorithm>
#include <initializer_list>

#include <ATen/ops/addmm.h>
#include <ATen/ops/mul.h>

#include "core/loader/hook_services.h"
#include "core/loader/orthogonalise.h"
#include "core/loader/tensor_view.h"

namespace shale {
namespace {

constexpr std::int64_t kColumns = 64;  // most that orthogonalise takes

HookServices& services(void* ctx) { return *static_cast<HookServices*>(ctx); }

shale_status* bad(const char* argument, const std::string& text) {
  return make_status(SHALE_BAD_ARGUMENT, argument, text);
}

at::ScalarType type_for(std::initializer_list<at::ScalarType> types) {
  return std::find(types.begin(), types.end(), at::kDouble) != types.end() ? at::kDouble : at::kFloat;
}

shale_status* check_float(const at::Tensor& t, const char* name) {
  if (at::isFloatingType(t.scalar_type())) return nullptr;
  return bad(name, str("is of ", c10::toString(t.scalar_type()), "; it must be of a float type"));
}

// Elementwise operands: as many elements, and either the same memory or apart.
shale_status* check_pair(const at::Tensor& x, const char* name, const at::Tensor& y, const char* other) {
  if (x.numel() != y.numel()) return bad(name, str("has ", x.numel(), " elements, ", other, " ", y.numel()));
  const bool in_place = same_memory(x, y) && x.scalar_type() == y.scalar_type();
  return overlaps(x, y) && !in_place ? bad(name, str("overlaps ", other)) : nullptr;
}

shale_status* copy(void* ctx, shale_lane* lane, const shale_tensor* dst, const shale_tensor* src) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    at::Tensor to, from;
    if (auto* problem = tensor_from_c(dst, "dst", Use::write, l.device, to)) return problem;
    if (auto* problem = tensor_from_c(src, "src", Use::read, l.device, from)) return problem;
    if (auto* problem = check_pair(from, "src", to, "dst")) return problem;
    if (from.scalar_type() != to.scalar_type())
      if (auto* problem = check_float(to, "dst")) return problem;
    if (to.numel() > 0 && !same_memory(to, from)) flat_view(to).copy_(flat_view(from));
    return nullptr;
  });
}

// y = a x + b y with one dtype: no memory beside the operands.
void axpby_in_place(double a, const at::Tensor& x, double b, at::Tensor y) {
  if (b == 0) {
    at::mul_out(y, x, a);
  } else if (same_memory(x, y)) {
    y.mul_(a + b);
  } else {
    if (b != 1) y.mul_(b);
    y.add_(x, a);
  }
}

void axpby_tiled(double a, const at::Tensor& x, double b, const at::Tensor& y, at::ScalarType type) {
  const std::int64_t tile = y.is_cuda() ? std::int64_t{1} << 24 : std::int64_t{1} << 16;
  for (std::int64_t begin = 0; begin < y.numel(); begin += tile) {
    const std::int64_t n = std::min(tile, y.numel() - begin);
    const at::Tensor to = y.narrow(0, begin, n);
    at::Tensor sum;
    if (b != 0) sum = to.to(type, false, true).mul_(b);
    if (a != 0) {
      const at::Tensor from = x.narrow(0, begin, n).to(type);
      sum = sum.defined() ? sum.add_(from, a) : from.mul(a);
    }
    to.copy_(sum);
  }
}

// Flat operands.
void axpby_of(double a, const at::Tensor& x, double b, const at::Tensor& y) {
  if (a == 0 && b == 0) {
    y.zero_();
    return;
  }
  const at::ScalarType type = type_for({a == 0 ? y.scalar_type() : x.scalar_type(), y.scalar_type()});
  if (a == 0 && y.scalar_type() == type) {
    if (b != 1) y.mul_(b);
  } else if (y.scalar_type() == type && x.scalar_type() == type) {
    axpby_in_place(a, x, b, y);
  } else {
    axpby_tiled(a, x, b, y, type);
  }
}

constexpr auto axpby = [](void* ctx, shale_lane* lane, double a, const shale_tensor* x, double b,
                          const shale_tensor* y) -> shale_status* {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    at::Tensor from, to;
    if (auto* problem = tensor_from_c(x, "x", Use::read, l.device, from)) return problem;
    if (auto* problem = tensor_from_c(y, "y", Use::write, l.device, to)) return problem;
    if (auto* problem = check_float(from, "x")) return problem;
    if (auto* problem = check_float(to, "y")) return problem;
    if (auto* problem = check_pair(from, "x", to, "y")) return problem;
    if (to.numel() > 0) axpby_of(a, flat_view(from), b, flat_view(to));
    return nullptr;
  });
};

struct Product {
  double alpha = 1, beta = 0;
  at::Tensor a, b, c;  // op(a), op(b) and c
};

shale_status* check_product(const Product& p) {
  if (p.a.size(1) != p.b.size(0))
    return bad("b", str("op(b) has ", p.b.size(0), " rows, op(a) ", p.a.size(1), " columns"));
  if (p.c.size(0) != p.a.size(0) || p.c.size(1) != p.b.size(1))
    return bad("c", str("is ", p.c.size(0), " x ", p.c.size(1), ", op(a) op(b) is ", p.a.size(0), " x ", p.b.size(1)));
  return nullptr;
}

void multiply(Product p) {
  if (p.c.numel() == 0) return;
  if (p.alpha == 0 || p.a.size(1) == 0) {
    axpby_of(0, flat_view(p.c), p.beta, flat_view(p.c));
    return;
  }
  const at::ScalarType type = type_for({p.a.scalar_type(), p.b.scalar_type(), p.c.scalar_type()});
  at::Tensor sum = p.c.scalar_type() == type ? p.c : p.beta == 0 ? p.c.new_empty(p.c.sizes(), type) : p.c.to(type);
  at::addmm_out(sum, sum, p.a.to(type), p.b.to(type), p.beta, p.alpha);
  if (!sum.is_same(p.c)) p.c.copy_(sum);
}

shale_status* read_matrix(const shale_tensor* theirs, const char* name, Use use, const shale_lane& l, at::Tensor& out) {
  if (auto* problem = tensor_from_c(theirs, name, use, l.device, out)) return problem;
  if (auto* problem = check_float(out, name)) return problem;
  return out.dim() == 2 ? nullptr : bad(name, str("has ", out.dim(), " dimensions, must be a matrix"));
}

constexpr auto matmul = [](void* ctx, shale_lane* lane, std::uint32_t transpose, double alpha, const shale_tensor* a,
                           const shale_tensor* b, double beta, const shale_tensor* c) -> shale_status* {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    if (transpose > 3) return bad("transpose", str("is ", transpose));
    Product p{alpha, beta, {}, {}, {}};
    if (auto* problem = read_matrix(a, "a", Use::read, l, p.a)) return problem;
    if (auto* problem = read_matrix(b, "b", Use::read, l, p.b)) return problem;
    if (auto* problem = read_matrix(c, "c", Use::write, l, p.c)) return problem;
    if (overlaps(p.c, p.a)) return bad("c", "overlaps a");
    if (overlaps(p.c, p.b)) return bad("c", "overlaps b");
    if (transpose & 1u) p.a = p.a.t();
    if (transpose & 2u) p.b = p.b.t();
    if (auto* problem = check_product(p)) return problem;
    multiply(std::move(p));
    return nullptr;
  });
};

shale_status* orthogonalise_columns(void* ctx, shale_lane* lane, const shale_tensor* a) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    at::Tensor matrix;
    if (auto* problem = read_matrix(a, "a", Use::write, l, matrix)) return problem;
    if (matrix.size(1) > kColumns) return bad("a", str("has ", matrix.size(1), " columns; at most ", kColumns));
    if (matrix.numel() > 0) orthogonalise(matrix);
    return nullptr;
  });
}

}  // namespace

shale_math math_table(HookServices* services) {
  return {sizeof(shale_math), 0, services, copy, axpby, matmul, orthogonalise_columns};
}

}  // namespace shale

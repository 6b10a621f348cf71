#include "core/loader/orthogonalise.h"

#include <limits>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace shale {
namespace {

// What is left of a column that depends on the others is its own rounding.
double tolerance(at::ScalarType type) {
  constexpr double kTimes = 16;
  switch (type) {
    case at::kDouble:
      return kTimes * std::numeric_limits<double>::epsilon();
    case at::kFloat:
      return kTimes * std::numeric_limits<float>::epsilon();
    case at::kHalf:
      return kTimes / 1024;
    default:
      return kTimes / 128;  // bfloat16 and narrower
  }
}

}  // namespace

void orthogonalise(const at::Tensor& a) {
  const at::Tensor rows = a.t().to(at::kDouble).contiguous();  // columns as rows: each lies in one piece
  const double small = tolerance(a.scalar_type());
  for (std::int64_t j = 0; j < rows.size(0); ++j) {
    const at::Tensor column = rows.select(0, j), before = rows.narrow(0, 0, j);
    const at::Tensor length = at::linalg_vector_norm(column);
    for (int pass = 0; pass < 2 && j > 0; ++pass)  // the second takes away what rounding left of the first
      column.sub_(at::mv(before.t(), at::mv(before, column)));
    const at::Tensor rest = at::linalg_vector_norm(column);
    const at::Tensor dependent = rest.le(length.mul(small)).logical_and(at::isfinite(length));
    column.mul_(at::where(dependent, at::zeros_like(rest), rest.reciprocal()));
  }
  a.copy_(rows.t());
}

}  // namespace shale

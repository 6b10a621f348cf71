#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "core/loader/hook_services.h"
#include "core/loader/tensor_view.h"
#include "fake_lane.h"
#include "support.h"

namespace shale {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Math : testing::Test {
  Math() : lent(services, lane, at::kCPU), table(static_cast<const shale_math*>(services.find(SHALE_MATH_SERVICE))) {}

  static shale_tensor c(const at::Tensor& t) { return tensor_to_c(t, Use::write); }
  // "" = fine, else "where: text".
  static std::string text(shale_status* s) {
    const Status owned(s);
    return s == nullptr ? ""
                        : str(s->code == SHALE_BAD_ARGUMENT ? "" : str("code ", s->code, " "), s->where, ": ", s->text);
  }
  std::string copy(const shale_tensor& dst, const shale_tensor& src) {
    return text(table->copy(table->ctx, lent.handle(), &dst, &src));
  }
  std::string copy(const at::Tensor& dst, const at::Tensor& src) { return copy(c(dst), c(src)); }
  std::string axpby(double a, const at::Tensor& x, double b, const at::Tensor& y) {
    const shale_tensor cx = c(x), cy = c(y);
    return text(table->axpby(table->ctx, lent.handle(), a, &cx, b, &cy));
  }
  struct Factors {
    std::uint32_t transpose = 0;
    double alpha = 1, beta = 0;
  };
  std::string matmul(Factors f, const at::Tensor& a, const at::Tensor& b, const at::Tensor& to) {
    const shale_tensor ca = c(a), cb = c(b), cc = c(to);
    return text(table->matmul(table->ctx, lent.handle(), f.transpose, f.alpha, &ca, &cb, f.beta, &cc));
  }
  std::string orthogonalise(const at::Tensor& a) {
    const shale_tensor ca = c(a);
    return text(table->orthogonalise(table->ctx, lent.handle(), &ca));
  }

  HookServices services{0};
  test::FakeLane lane;
  HookServices::Lent lent;
  const shale_math* table;
};

TEST_F(Math, CopyCastsFloatsAndMovesTheRest) {
  const at::Tensor wide = at::randn({1000}), narrow = at::zeros({1000}, at::kBFloat16);
  EXPECT_EQ(copy(narrow, wide), "");
  EXPECT_TRUE(at::equal(narrow, wide.to(at::kBFloat16)));
  const at::Tensor bytes = at::arange(5, at::kByte), other = at::zeros({5}, at::kByte), number = at::zeros({5});
  EXPECT_EQ(copy(other, bytes), "");
  EXPECT_TRUE(at::equal(other, bytes));
  EXPECT_EQ(copy(number, bytes), "");
  EXPECT_EQ(number[4].item<double>(), 4);
  EXPECT_EQ(copy(wide.view({10, 100}), wide), "");  // itself
  EXPECT_EQ(copy(bytes, number), "dst: is of Byte; it must be of a float type");
  EXPECT_EQ(copy(wide, number), "src: has 5 elements, dst 1000");
  EXPECT_EQ(copy(wide.narrow(0, 1, 10), wide.narrow(0, 0, 10)), "src: overlaps dst");
  EXPECT_EQ(copy(at::zeros({0}), at::zeros({0, 3})), "");
}

TEST_F(Math, AxpbyIsThatOfATen) {
  for (const auto xt : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto yt : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const auto& [a, b] : {std::pair{1.0, 1.0}, {0.5, 0.25}, {-2.0, 0.0}, {0.0, 3.0}, {0.0, 0.0}, {1.0, 0.0}}) {
        SCOPED_TRACE(str(c10::toString(xt), " ", c10::toString(yt), " ", a, " ", b));
        const at::Tensor x = at::randn({70000}).to(xt), y = at::randn({70000}).to(yt);
        const auto type = xt == at::kDouble || yt == at::kDouble ? at::kDouble : at::kFloat;
        const at::Tensor wanted = (x.to(at::kDouble) * a + y.to(at::kDouble) * b).to(type).to(yt);
        ASSERT_EQ(axpby(a, x, b, y), "");
        EXPECT_TRUE(at::allclose(y, wanted, yt == at::kBFloat16 ? 8e-3 : 1e-5, 1e-6));
      }
}

TEST_F(Math, AxpbyOfATensorWithItself) {
  const at::Tensor y = at::full({100}, 2.0);
  EXPECT_EQ(axpby(3, y, 0.5, y), "");
  EXPECT_TRUE(at::equal(y, at::full({100}, 7.0)));
  EXPECT_EQ(axpby(2, y, 0, y), "");
  EXPECT_TRUE(at::equal(y, at::full({100}, 14.0)));
}

TEST_F(Math, AFactorOfZeroDoesNotReadItsOperand) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor bad = at::full({100}, kNan, type), y = at::full({100}, 2.0, type);
    EXPECT_EQ(axpby(0, bad, 3, y), "");
    EXPECT_TRUE(at::equal(y, at::full({100}, 6.0, type)));
    EXPECT_EQ(axpby(1, y, 0, bad), "");
    EXPECT_TRUE(at::equal(bad, y));
    bad.fill_(kNan);
    EXPECT_EQ(axpby(0, bad, 0, bad), "");
    EXPECT_TRUE(at::equal(bad, at::zeros({100}, type)));
    const at::Tensor a = at::full({4, 4}, 1.0, type), poison = at::full({4, 4}, kNan, type);
    EXPECT_EQ(matmul({0, 1, 0}, a, a, poison), "");
    EXPECT_TRUE(at::equal(poison, at::full({4, 4}, 4.0, type)));
    poison.fill_(kNan);
    EXPECT_EQ(matmul({0, 0, 2}, poison, poison, a), "");
    EXPECT_TRUE(at::equal(a, at::full({4, 4}, 2.0, type)));
  }
}

TEST_F(Math, MatmulIsThatOfATen) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (std::uint32_t transpose = 0; transpose < 4; ++transpose) {
      SCOPED_TRACE(str(c10::toString(type), " ", transpose));
      const at::Tensor a = at::randn({7, 5}), b = at::randn({5, 3}), to = at::randn({7, 3}).to(type);
      const at::Tensor wanted = at::addmm(to.to(at::kDouble), a.to(at::kDouble), b.to(at::kDouble), 0.5, -2).to(type);
      const at::Tensor ga = (transpose & 1u) ? a.t().contiguous() : a, gb = (transpose & 2u) ? b.t().contiguous() : b;
      ASSERT_EQ(matmul({transpose, -2, 0.5}, ga, gb, to), "");
      EXPECT_TRUE(at::allclose(to, wanted, type == at::kBFloat16 ? 1e-2 : 1e-5, 1e-5));
    }
  const at::Tensor to = at::full({2, 3}, 5.0);
  EXPECT_EQ(matmul({0, 1, 3}, at::zeros({2, 0}), at::zeros({0, 3}), to), "");  // an empty sum
  EXPECT_TRUE(at::equal(to, at::full({2, 3}, 15.0)));
  EXPECT_EQ(matmul({}, at::zeros({0, 2}), at::zeros({2, 3}), at::zeros({0, 3})), "");
}

TEST_F(Math, MatmulRefusesWhatDoesNotFit) {
  const at::Tensor a = at::zeros({2, 3}), b = at::zeros({3, 4}), to = at::zeros({2, 4});
  EXPECT_EQ(matmul({1, 1, 0}, a, b, to), "b: op(b) has 3 rows, op(a) 2 columns");
  EXPECT_EQ(matmul({}, a, b, at::zeros({4, 2})), "c: is 4 x 2, op(a) op(b) is 2 x 4");
  EXPECT_EQ(matmul({4, 1, 0}, a, b, to), "transpose: is 4");
  EXPECT_EQ(matmul({}, a, b, at::zeros({8})), "c: has 1 dimensions, must be a matrix");
  EXPECT_EQ(matmul({}, a.to(at::kInt), b, to), "a: is of Int; it must be of a float type");
  const at::Tensor square = at::zeros({3, 3});
  EXPECT_EQ(matmul({}, square, b.narrow(1, 0, 3).contiguous(), square), "c: overlaps a");
}

TEST_F(Math, OrthogonaliseColumns) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor a = at::randn({200, 8}).to(type);
    const at::Tensor before = a.clone();
    ASSERT_EQ(orthogonalise(a), "");
    EXPECT_TRUE(at::allclose(at::mm(a.t(), a), at::eye(8, type), 0, type == at::kFloat ? 1e-6 : 1e-14));
    // It spans the same: the part of `before` outside of it is nothing.
    EXPECT_LT((before - at::mm(a, at::mm(a.t(), before))).abs().max().item<double>(), 1e-4);
  }
}

TEST_F(Math, OrthogonaliseMakesDependentColumnsZero) {
  const at::Tensor a = at::randn({50, 4});
  a.select(1, 1).copy_(a.select(1, 0) * -3);
  a.select(1, 3).copy_(a.select(1, 0) * 0.3 + a.select(1, 2) * 1.7);
  ASSERT_EQ(orthogonalise(a), "");
  EXPECT_EQ(a.select(1, 1).abs().max().item<double>(), 0);
  EXPECT_EQ(a.select(1, 3).abs().max().item<double>(), 0);
  EXPECT_NEAR(a.select(1, 2).norm().item<double>(), 1, 1e-6);
  const at::Tensor none = at::zeros({5, 2});
  ASSERT_EQ(orthogonalise(none), "");
  EXPECT_TRUE(at::equal(none, at::zeros({5, 2})));
}

TEST_F(Math, OrthogonaliseDoesNotHideWhatIsNotFinite) {
  for (const double poison : {kNan, std::numeric_limits<double>::infinity()})
    for (const int column : {0, 1}) {
      const at::Tensor a = at::randn({50, 3});
      a[7][column] = poison;
      ASSERT_EQ(orthogonalise(a), "");
      for (int k = column; k < 3; ++k) EXPECT_TRUE(a.select(1, k).isnan().any().item<bool>()) << k;
    }
  EXPECT_EQ(orthogonalise(at::zeros({3, 65})), "a: has 65 columns; at most 64");
  EXPECT_EQ(orthogonalise(at::zeros({3})), "a: has 1 dimensions, must be a matrix");
}

// One wrong member at a time.
TEST_F(Math, WrongTensorsAreRefusedByName) {
  const at::Tensor good = at::zeros({2, 3});
  const auto wrong = [&](auto&& change) {
    shale_tensor t = c(good);
    change(t);
    const std::string as_source = copy(c(good), t);
    EXPECT_EQ(as_source.substr(0, 5), "src: ") << as_source;
    return as_source.substr(std::min<std::size_t>(5, as_source.size()));
  };
  EXPECT_EQ(wrong([](auto& t) { t.struct_size = 0; }), "has struct_size 0, ABI 0.1 has 160: fill it with SHALE_VAR");
  EXPECT_EQ(wrong([](auto& t) { t.dtype = 0x1099; }), "has dtype 4249, which this shale cannot work with");
  EXPECT_EQ(wrong([](auto& t) { t.dtype = SHALE_F4_E2M1; }), "has dtype 1032, which this shale cannot work with");
  EXPECT_EQ(wrong([](auto& t) { t.ndim = 9; }), "has 9 dimensions; at most 8");
  EXPECT_EQ(wrong([](auto& t) { t.shape[0] = -1; }), "has -1 elements in dimension 0");
  EXPECT_EQ(wrong([](auto& t) { t.shape[0] = t.shape[1] = std::int64_t{1} << 40; }),
            "has more elements than any memory holds");
  EXPECT_EQ(wrong([](auto& t) { t.strides[0] = 4; }), "has stride 4 in dimension 0; it must be row-major, so 3");
  EXPECT_EQ(wrong([](auto& t) { std::swap(t.strides[0], t.strides[1]), t.strides[1] = 2; }),
            "has stride 2 in dimension 1; it must be row-major, so 1");
  EXPECT_EQ(wrong([](auto& t) { t.data = nullptr; }), "has no data");
  EXPECT_EQ(wrong([](auto& t) { t.data = static_cast<char*>(t.data) + 1; }),
            "begins inside an element: its data is not aligned");
  EXPECT_EQ(wrong([](auto& t) { t.device_type = SHALE_DEVICE_CUDA; }),
            "lies on a CUDA device, the lane works on the CPU");
  shale_tensor t = c(good);
  t.read_only = 1;
  EXPECT_EQ(copy(t, c(good)), "dst: is read-only");
  EXPECT_EQ(copy(c(good), t), "");
  const shale_tensor source = c(good);
  EXPECT_EQ(text(table->copy(table->ctx, lent.handle(), nullptr, &source)), "dst: is NULL");
  t = c(good), t.read_only = 0, t.shape[0] = 1, t.strides[0] = 77;  // of one element: no stride
  EXPECT_EQ(copy(at::zeros({3}), at::zeros({3})), "");
  EXPECT_EQ(copy(c(at::zeros({3})), t), "");
}

TEST_F(Math, ALaneThatIsNotLent) {
  const shale_tensor t = c(at::zeros({3}));
  EXPECT_EQ(text(table->copy(table->ctx, nullptr, &t, &t)), "lane: is not lent to this hook");
  shale_lane* gone = nullptr;
  {
    HookServices::Lent other(services, lane, at::kCPU);
    gone = other.handle();
  }
  EXPECT_EQ(text(table->orthogonalise(table->ctx, gone, &t)), "lane: is not lent to this hook");
}

}  // namespace
}  // namespace shale

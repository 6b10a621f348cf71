#include "core/comm/rank_order_sum.h"

#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

TEST(RankOrderSum, AddsFromTheFirstToTheLast) {
  const std::vector<float> big{1e8F}, minus{-1e8F}, one{1};
  const at::Tensor out = at::empty({1});
  const std::vector<const void*> pieces{big.data(), minus.data(), one.data()};
  rank_order_sum(out, pieces, at::kFloat);
  EXPECT_EQ(out.item<float>(), 1);
  const std::vector<const void*> other{big.data(), one.data(), minus.data()};
  rank_order_sum(out, other, at::kFloat);
  EXPECT_EQ(out.item<float>(), 0);
}

TEST(RankOrderSum, SumsNarrowPiecesInTheTypeOfTheResult) {
  const at::Tensor a = at::full({9000}, 256, at::kBFloat16), b = at::full({9000}, 1, at::kBFloat16);
  const at::Tensor out = at::empty({9000});
  const std::vector<const void*> pieces{a.data_ptr(), b.data_ptr(), b.data_ptr()};
  rank_order_sum(out, pieces, at::kBFloat16);
  EXPECT_TRUE(at::equal(out, at::full({9000}, 258.0F)));  // in bfloat16 it would stay 256
}

TEST(RankOrderSum, RefusesToLoseDigits) {
  const at::Tensor wide = at::full({4}, 1, at::kDouble), whole = at::full({4}, 1, at::kLong);
  const std::vector<const void*> pieces{wide.data_ptr()};
  EXPECT_THROW(rank_order_sum(at::empty({4}), pieces, at::kDouble), Error);
  EXPECT_THROW(rank_order_sum(at::empty({4}, at::kBFloat16), pieces, at::kBFloat16), Error);
  EXPECT_THROW(rank_order_sum(at::empty({4}), pieces, at::kLong), Error);
  EXPECT_THROW(rank_order_sum(at::empty({4}), {}, at::kFloat), Error);
}

}  // namespace
}  // namespace shale

#include "core/optim/norm.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/core/optim/shards.h"

namespace shale {
namespace {

double dense_square(const at::Tensor& grad) { return grad.to(at::kDouble).pow(2).sum().item<double>(); }

TEST(SquaredNorm, IsTheSameForEveryNumberOfRanks) {
  for (auto dtype : {at::kDouble, at::kFloat})
    for (int ways : {1, 2, 3, 64, 1000}) {
      double sum = 0, expected = 0;
      for (int rank = 0; rank < ways; ++rank) {
        std::deque<Shard> shards;
        shards.push_back(make_shard(ways, rank, dtype));
        const auto grad = values(shards[0].layout.numel, 5).to(dtype);
        set_grad(shards[0], grad);
        sum += squared_norm(shards);
        expected = dense_square(grad);
      }
      EXPECT_NEAR(sum, expected, 1e-13 * expected) << ways << " ranks";
    }
}

// C14: replicas of a gradient are one gradient.
TEST(SquaredNorm, CountsReplicasOnce) {
  double sum = 0, expected = 0;
  for (int replica = 0; replica < 2; ++replica)
    for (int rank = 0; rank < 2; ++rank) {
      std::deque<Shard> shards;
      shards.push_back(make_shard(2, rank, at::kFloat));
      const auto grad = values(shards[0].layout.numel, 5).to(at::kFloat);
      set_grad(shards[0], grad);
      shards[0].counted = replica == 0;
      sum += squared_norm(shards);
      expected = dense_square(grad);
    }
  EXPECT_NEAR(sum, expected, 1e-13 * expected);
}

TEST(SquaredNorm, SkipsFrozenShardsAndAddsUpTheOthers) {
  std::deque<Shard> shards;
  for (int i = 0; i < 3; ++i) shards.push_back(make_shard(1, 0, at::kDouble));
  shards[0].grad.fill_(2), shards[2].grad.fill_(1), shards[1].grad = at::Tensor();
  EXPECT_EQ(squared_norm(shards), 5.0 * static_cast<double>(shards[0].layout.numel));
  EXPECT_EQ(squared_norm({}), 0);
}

// The engine's gradient memory is as long as a chunk; what is behind the owned part is padding.
TEST(SquaredNorm, DoesNotSeePadding) {
  std::deque<Shard> shards;
  shards.push_back(make_shard(5, 4, at::kFloat));
  auto& s = shards[0];
  ASSERT_LT(s.range.length, s.range.chunk);
  auto memory = at::zeros({s.range.chunk}, s.master.options()).fill_(1);
  s.grad = memory.narrow(0, 0, s.range.length);
  EXPECT_EQ(squared_norm(shards), static_cast<double>(s.range.length));
}

TEST(ClipFactor, BringsTheNormDown) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  EXPECT_DOUBLE_EQ(clip_factor(4, 0.1), 0.1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(1e9, 0), 1);  // 0: no clipping
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1), 0);
}

}  // namespace
}  // namespace shale

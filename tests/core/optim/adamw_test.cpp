#include "core/optim/adamw.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "tests/core/optim/shards.h"

namespace shale {
namespace {

constexpr int kSteps = 10;

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (auto& p : unit_parameters()) out.push_back(p.name);
  return out;
}

double rate(int step) { return 1e-2 / (1 + step); }
at::Tensor gradient(int step, std::int64_t n) { return values(n, 100.0 * (step + 1)) * 0.3; }

// The flat after kSteps, on `ways` ranks put together.
at::Tensor train(const AdamWOptions& o, int ways, at::ScalarType dtype, double grad_scale = 1) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ways; ++rank) {
    std::deque<Shard> shards;
    shards.push_back(make_shard(ways, rank, dtype));
    AdamW optimizer(o, names());
    for (int step = 0; step < kSteps; ++step) {
      set_grad(shards[0], gradient(step, shards[0].layout.numel) / grad_scale);
      optimizer.step(shards, rate(step), grad_scale);
    }
    parts.push_back(shards[0].master);
  }
  return at::cat(parts).to(at::kDouble);
}

// The formula of the paper, one element after the other.
at::Tensor by_formula(const AdamWOptions& o) {
  std::int64_t n = 0;
  std::vector<double> decay;
  for (auto& p : unit_parameters()) {
    const bool decays = o.decay_norms || p.name == "matrix" || p.name == "table";
    decay.insert(decay.end(), static_cast<std::size_t>(numel(p.shape)), decays ? o.weight_decay : 0.0);
    n += numel(p.shape);
  }
  auto p = values(n, 0).contiguous();
  auto* x = p.data_ptr<double>();
  std::vector<double> m(static_cast<std::size_t>(n)), v(m);
  for (int step = 0; step < kSteps; ++step) {
    const auto grad = gradient(step, n).contiguous();
    const auto* g = grad.const_data_ptr<double>();
    const double lr = rate(step), one = 1 - std::pow(o.beta1, step + 1), two = 1 - std::pow(o.beta2, step + 1);
    for (std::size_t i = 0; i < m.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      x[i] = x[i] * (1 - lr * decay[i]) - lr * (m[i] / one) / (std::sqrt(v[i] / two) + o.eps);
    }
  }
  return p;
}

double apart(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(AdamW, EqualsTheFormulaHoweverTheFlatIsCut) {
  for (bool decay_norms : {true, false})
    for (int ways : {1, 2, 3, 64}) {
      SCOPED_TRACE(shale::str(ways, " ranks, decay_norms ", decay_norms));
      const AdamWOptions o{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3, .decay_norms = decay_norms};
      const auto expected = by_formula(o);
      EXPECT_LT(apart(train(o, ways, at::kDouble), expected), 1e-14);
      // Ten updates of float32 numbers near 1, each rounded to 6e-8.
      EXPECT_LT(apart(train(o, ways, at::kFloat), expected), 3e-6);
      EXPECT_TRUE(train(o, ways, at::kFloat).equal(train(o, 1, at::kFloat))) << "the cut changes a bit";
    }
}

TEST(AdamW, EqualsTorch) {
  const AdamWOptions o;
  auto p = make_shard(1, 0, at::kDouble).master;
  std::vector<at::Tensor> master{p}, m{at::zeros_like(p)}, v{at::zeros_like(p)};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> grad{gradient(step, p.numel()).contiguous()};
    std::vector<at::Tensor> steps{at::full({}, step + 1.0, at::kFloat)};
    at::_fused_adamw_(master, grad, m, v, {}, steps, rate(step), o.beta1, o.beta2, o.weight_decay, o.eps, false, false);
  }
  EXPECT_LT(apart(train(o, 3, at::kDouble), p), 1e-14);
}

TEST(AdamW, ScalesGradientsAsItGoes) {
  for (auto dtype : {at::kDouble, at::kFloat})
    EXPECT_TRUE(train({}, 2, dtype, 0.25).equal(train({}, 2, dtype))) << "a power of two must not change a bit";
  EXPECT_LT(apart(train({}, 2, at::kDouble, 0.3), train({}, 2, at::kDouble)), 1e-14);
}

TEST(AdamW, LeavesGradients) {
  std::deque<Shard> shards;
  shards.push_back(make_shard(2, 1, at::kFloat));
  set_grad(shards[0], gradient(0, shards[0].layout.numel));
  const auto before = shards[0].grad.clone();
  AdamW(AdamWOptions(), names()).step(shards, 0.1, 0.5);
  EXPECT_TRUE(shards[0].grad.equal(before));
}

TEST(AdamW, CountsUpdatesOfWhatOtherRanksOwn) {
  std::deque<Shard> shards;
  shards.push_back(make_shard(64, 40, at::kFloat));  // a part of the last parameter only
  ASSERT_EQ(shards[0].pieces.size(), 1u);
  AdamW optimizer({}, names());
  for (int i = 0; i < 3; ++i) optimizer.step(shards, 0.1, 1);
  EXPECT_EQ(optimizer.updates(),
            (std::map<std::string, std::int64_t>{{"matrix", 3}, {"norm", 3}, {"bias", 3}, {"table", 3}}));
}

// A count of its own per parameter: one that starts to train later has its own correction of the first moments.
TEST(AdamW, GoesOnFromRestoredCounts) {
  AdamW optimizer({.weight_decay = 0}, names());
  for (auto& [name, updates] : optimizer.updates()) updates = name == "matrix" ? 0 : 1'000'000;
  std::deque<Shard> shards;
  shards.push_back(make_shard(1, 0, at::kDouble));
  auto& s = shards[0];
  const auto before = s.master.clone();
  s.grad.fill_(1);
  optimizer.step(shards, 1e-3, 1);
  const auto moved = before - s.master;
  const auto matrix = moved.narrow(0, 0, 7 * 13), rest = moved.narrow(0, 7 * 13, s.layout.numel - 7 * 13);
  EXPECT_NEAR(matrix.min().item<double>(), 1e-3, 1e-10);  // m / sqrt(v) is 1 after the correction
  EXPECT_NEAR(rest.max().item<double>(), 1e-3 * 0.1 / std::sqrt(0.05), 1e-9);
}

TEST(AdamW, LeavesFrozenShardsAlone) {
  std::deque<Shard> shards;
  shards.push_back(make_shard(1, 0, at::kFloat));
  auto& s = shards[0];
  s.grad = s.exp_avg = s.exp_avg_sq = at::Tensor();
  const auto before = s.master.clone();
  AdamW({}, {}).step(shards, 0.1, 1);
  EXPECT_TRUE(s.master.equal(before));
}

TEST(AdamW, ThreadsDoNotChangeABit) {
  const ParameterInfo info{"wide", {300'001}, kLinear};
  const auto stepped = [&](int threads) {
    at::set_num_threads(threads);
    std::deque<Shard> shards(1);
    auto& s = shards[0];
    s.layout.parameters = {0}, s.layout.offsets = {0}, s.layout.numel = numel(info.shape);
    s.range = shard_range(s.layout.numel, 1, 0, 1);
    s.master = values(s.layout.numel, 0).to(at::kFloat), s.grad = values(s.layout.numel, 9).to(at::kFloat);
    s.exp_avg = at::zeros_like(s.master), s.exp_avg_sq = at::zeros_like(s.master);
    s.pieces = {{&info, {0, 0, s.layout.numel}}};
    AdamW({}, {"wide"}).step(shards, 0.1, 1);
    return s.master;
  };
  EXPECT_TRUE(stepped(1).equal(stepped(3)));
}

}  // namespace
}  // namespace shale

// The hook of examples/powersgd on simulated ranks: sums of few directions come back whole, and what compression
// loses is in the error, to the last number.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "simulate.h"

namespace shale::conform {
namespace {

constexpr std::size_t kFlats = 4;  // of the model below: embedding, two layers, head
constexpr std::uint32_t kError = 0;

struct Step {
  std::uint64_t step = 1;
  double grad_scale = 1;
  bool after_skip = false;
};

class PowerSgd : public testing::Test {
 protected:
  PowerSgd() : library_(POWERSGD) {}

  World& world(const std::string& rank) {
    world_.emplace(library_, WorldShape{4, 2, {.numbers = Numbers::f64}},
                   Given{{"rank", rank}, {"min_numel", "1"}, {"start_step", "1"}});
    EXPECT_EQ(world_->flats(), kFlats);
    return *world_;
  }

  // Parameters of the flat that are matrices worth compressing come first to f(param, offset, rows, columns).
  template <class F>
  void each_matrix(const Flat& flat, const F& f) {
    for (std::uint32_t p = 0; p < flat.c.n_params; ++p) {
      const shale_param& w = *flat.c.params[p];
      if (w.ndim == 2) f(flat.c.offsets[p], static_cast<std::uint64_t>(w.shape[0]), w.numel / w.shape[0]);
    }
  }

  // grads[rank][flat], which become what the hook makes of them.
  void replicate(World& w, const Step& s, std::vector<std::vector<Buffer>>& grads) {
    Queue queue;
    for (std::size_t k = 0; k < w.flats(); ++k)
      queue.push_back({"replicate", w.flat(k).c.unit, [&grads, k, s](Rank& r, shale_lane* lane) {
                         SHALE_VAR(shale_exchange_call, c);
                         c.group = SHALE_GROUP_WORLD, c.ways = 4, c.is_last = 1;
                         c.step = s.step, c.grad_scale = s.grad_scale, c.after_skip = s.after_skip;
                         c.flat = &r.flats[k].c, c.lane = lane;
                         const shale_tensor t = grads[r.id][k].tensor();
                         return r.exchange->replicate(r.plugin->self(), &c, &t);
                       }});
    EXPECT_EQ(w.run({{}, queue}), std::vector<std::string>{});
  }

  // value(flat, element, rank), times the loss scale.
  template <class F>
  std::vector<std::vector<Buffer>> make(World& w, double scale, const F& value) {
    std::vector<std::vector<Buffer>> grads(w.size());
    for (std::uint32_t r = 0; r < w.size(); ++r)
      for (std::size_t k = 0; k < w.flats(); ++k) {
        Buffer& b = grads[r].emplace_back(SHALE_F64, w.flat(k).c.numel);
        for (std::uint64_t i = 0; i < b.size(); ++i) b.set(i, scale * value(k, i, r));
      }
    return grads;
  }

  template <class F>
  double sum(World& w, std::size_t flat, std::uint64_t element, const F& value) {
    double total = 0;
    for (std::uint32_t r = 0; r < w.size(); ++r) total += value(flat, element, r);
    return total;
  }

  Library library_;
  std::optional<World> world_;
};

// Every rank's matrix has two directions of rows, the same on all ranks, so their sum has two as well.
struct TwoDirections {
  World& world;
  std::uint64_t salt;
  double operator()(std::size_t flat, std::uint64_t element, std::uint32_t rank) const {
    const shale_flat& f = world.flat(flat).c;
    std::uint32_t p = f.n_params - 1;
    while (f.offsets[p] > element) --p;
    const std::uint64_t at = element - f.offsets[p];
    const std::uint64_t columns = f.params[p]->ndim == 2 ? static_cast<std::uint64_t>(f.params[p]->shape[1]) : 1;
    const std::uint64_t row = at / columns, column = at % columns;
    return any_value(row, 3) * any_value(column, salt + rank) + any_value(row, 4) * any_value(column, 50 + rank);
  }
};

TEST_F(PowerSgd, SumsOfFewDirectionsComeBackWhole) {
  World& w = world("2");
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const Step s{.step = step, .grad_scale = step % 2 == 0 ? 1024.0 : 1.0};
    const TwoDirections value{w, 100 * step};
    auto grads = make(w, s.grad_scale, value);
    replicate(w, s, grads);
    for (std::size_t k = 0; k < w.flats(); ++k)
      for (std::uint64_t i = 0; i < grads[0][k].size(); ++i)
        ASSERT_NEAR(grads[0][k].get(i) / s.grad_scale, sum(w, k, i, value), 1e-11) << "flat " << k << ", element " << i;
  }
}

TEST_F(PowerSgd, WhatIsNotSentIsInTheError) {
  World& w = world("1");
  const auto value = [](std::size_t k, std::uint64_t i, std::uint32_t r) { return any_value(i, 1000 + 8 * k + r); };
  std::vector<std::vector<double>> sent(w.flats());
  double lost = 0;
  for (std::uint64_t step = 1; step <= 6; ++step) {
    const Step s{.step = step, .grad_scale = step % 2 == 0 ? 64.0 : 1.0};
    auto grads = make(w, s.grad_scale, value);
    replicate(w, s, grads);
    for (std::size_t k = 0; k < w.flats(); ++k) {
      sent[k].resize(grads[0][k].size());
      for (std::uint64_t i = 0; i < sent[k].size(); ++i) sent[k][i] += grads[0][k].get(i) / s.grad_scale;
    }
  }
  for (std::size_t k = 0; k < w.flats(); ++k)
    each_matrix(w.flat(k), [&](std::uint64_t offset, std::uint64_t rows, std::uint64_t columns) {
      if (rows + columns >= rows * columns) return;  // sent whole
      for (std::uint64_t i = offset; i < offset + rows * columns; ++i) {
        double error = 0;
        for (std::uint32_t r = 0; r < w.size(); ++r)
          error += w.rank(r).states.at({kError, &w.rank(r).flats[k].c}).get(i);
        ASSERT_NEAR(sent[k][i] + error, 6 * sum(w, k, i, value), 1e-11) << "flat " << k << ", element " << i;
        lost = std::max(lost, std::abs(error));
      }
    });
  EXPECT_GT(lost, 0.1) << "one direction is too few for these";
}

TEST_F(PowerSgd, AfterASkippedStepItIsLikeNew) {
  const auto finite = [](std::size_t k, std::uint64_t i, std::uint32_t r) { return any_value(i, 70 + 8 * k + r); };
  const auto bad = [&](std::size_t k, std::uint64_t i, std::uint32_t r) {
    return r == 2 && i == 1 ? INFINITY : finite(k, i, r);
  };
  std::vector<std::vector<Buffer>> after[2];
  for (const bool skip : {false, true}) {
    World& w = world("1");
    if (skip) {
      auto first = make(w, 1, finite), second = make(w, 1, bad);
      replicate(w, {.step = 1}, first);
      replicate(w, {.step = 2}, second);
      for (std::size_t k = 0; k < w.flats(); ++k) {
        bool shown = false;
        for (std::uint64_t i = 0; i < second[0][k].size(); ++i) shown = shown || !std::isfinite(second[0][k].get(i));
        EXPECT_TRUE(shown) << "flat " << k;
      }
    }
    after[skip] = make(w, 1, finite);
    replicate(w, {.step = 3, .after_skip = skip}, after[skip]);
  }
  for (std::size_t k = 0; k < kFlats; ++k) EXPECT_TRUE(after[0][0][k].same_bits(after[1][0][k])) << "flat " << k;
}

TEST_F(PowerSgd, DirectionsThatWereLostComeBack) {
  World& w = world("2");
  auto nothing = make(w, 1, [](std::size_t, std::uint64_t, std::uint32_t) { return 0.0; });
  replicate(w, {.step = 1}, nothing);
  const TwoDirections value{w, 9};
  auto grads = make(w, 1, value);
  replicate(w, {.step = 2}, grads);
  for (std::size_t k = 0; k < w.flats(); ++k)
    for (std::uint64_t i = 0; i < grads[0][k].size(); ++i)
      ASSERT_NEAR(grads[0][k].get(i), sum(w, k, i, value), 1e-11) << "flat " << k << ", element " << i;
}

}  // namespace
}  // namespace shale::conform

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/data/permutation.h"
#include "core/data/source.h"
#include "tests/core/data/token_files.h"

namespace shale {
namespace {

using testing::HasSubstr;

class Counting final : public TokenSource {  // token i is i
 public:
  explicit Counting(std::int64_t n) : n_(n) {}
  std::int64_t size() const override { return n_; }
  std::string name() const override { return "counting"; }
  void copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const override {
    ASSERT_GE(begin, 0);
    ASSERT_LE(begin + n, n_);
    std::iota(to, to + n, begin);
  }
  std::int64_t largest() const override { return n_ - 1; }

 private:
  std::int64_t n_;
};

constexpr std::int64_t kLength = 4;

struct Shape {
  int world = 1, micro_steps = 1;
  std::int64_t micro_batch = 1;
};

Sampler make(std::int64_t sequences, const Shape& shape, int rank = 0, bool shuffle = true, std::uint64_t seed = 5) {
  SamplerOptions options;
  options.seq_len = kLength;
  options.micro_batch = shape.micro_batch;
  options.micro_steps = shape.micro_steps;
  options.world = shape.world;
  options.rank = rank;
  options.shuffle = shuffle;
  options.seed = seed;
  return {std::make_shared<Counting>(sequences * kLength + 1), options, Log()};
}

// The windows of a step, [micro_step][rank][row] flattened, over all ranks.
std::vector<std::int64_t> step_windows(std::int64_t sequences, const Shape& shape, std::int64_t next) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(shape.world * shape.micro_steps * shape.micro_batch));
  for (int rank = 0; rank < shape.world; ++rank) {
    Cursor cursor{next};
    const auto batches = make(sequences, shape, rank).next(cursor);
    EXPECT_EQ(static_cast<int>(batches.size()), shape.micro_steps);
    EXPECT_EQ(cursor.next, next + static_cast<std::int64_t>(out.size()));
    for (int m = 0; m < shape.micro_steps; ++m) {
      for (std::int64_t i = 0; i < shape.micro_batch; ++i) {
        const std::int64_t first = batches[m].tokens[i][0].item<std::int64_t>();
        EXPECT_EQ(first % kLength, 0);
        out[(m * shape.world + rank) * shape.micro_batch + i] = first / kLength;
      }
    }
  }
  return out;
}

TEST(Sampler, WindowsAndTheirTargets) {
  Cursor cursor;
  const auto batches = make(3, {.micro_batch = 3}, 0, false).next(cursor);
  ASSERT_EQ(batches.size(), 1u);
  const Batch& batch = batches[0];
  EXPECT_EQ(batch.n_targets, 12);
  EXPECT_EQ(batch.tokens.sizes().vec(), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(batch.tokens.flatten()[i].item<std::int64_t>(), i);
    EXPECT_EQ(batch.targets.flatten()[i].item<std::int64_t>(), i + 1);
  }
}

TEST(Sampler, ASampleTellsDataApart) {
  EXPECT_EQ(make(100, {}).sample(), make(100, {2, 3, 1}, 1, false, 9).sample());  // of the data alone
  EXPECT_NE(make(100, {}).sample(), make(101, {}).sample());
}

TEST(Sampler, CountsSequencesC6) {
  const auto sequences = [](std::int64_t tokens) {
    SamplerOptions options;
    options.seq_len = 16;
    return Sampler(std::make_shared<Counting>(tokens), options, Log()).sequences();
  };
  for (const std::int64_t tokens : {0, 1, 16}) {
    try {
      sequences(tokens);
      ADD_FAILURE() << tokens;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::input);
      EXPECT_THAT(error.what(),
                  HasSubstr(str("counting: found ", tokens, " tokens, one sequence of seq_len 16 needs 17")));
    }
  }
  EXPECT_EQ(sequences(17), 1);
  EXPECT_EQ(sequences(32), 1);
  EXPECT_EQ(sequences(33), 2);
}

TEST(Sampler, FewSequencesRepeatWithAWarningC6) {
  testing::internal::CaptureStderr();
  const Shape shape{.world = 4};
  const auto windows = step_windows(3, shape, 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("3 sequences are fewer than the 4 of one step"));
  EXPECT_EQ(std::set<std::int64_t>(windows.begin(), windows.end()).size(), 3u);
}

TEST(Sampler, TheStepDoesNotDependOnRanksOrAccumulation) {
  for (const std::int64_t next : {0, 8, 96, 100}) {  // 100 sequences: the last two cross into the next epoch
    const auto one = step_windows(100, {.micro_batch = 8}, next);
    for (const Shape& shape : {Shape{8, 1, 1}, Shape{2, 2, 2}, Shape{4, 1, 2}, Shape{1, 8, 1}, Shape{2, 4, 1}}) {
      EXPECT_EQ(step_windows(100, shape, next), one) << next;
    }
  }
}

TEST(Sampler, AnEpochIsEachSequenceOnce) {
  const Sampler sampler = make(103, {.world = 3, .micro_batch = 2});
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < 103; ++i) seen.insert(sampler.sequence_at(epoch * 103 + i));
    EXPECT_EQ(seen.size(), 103u);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 102);
  }
}

TEST(Sampler, RanksPartitionTheDataC18) {
  const Shape shape{.world = 2, .micro_batch = 2};
  std::vector<std::int64_t> seen;
  for (std::int64_t step = 0; step < 5; ++step) {  // 5 steps of 4 = 4 epochs of 5 sequences; all ranks do each step
    const auto windows = step_windows(5, shape, step * 4);
    seen.insert(seen.end(), windows.begin(), windows.end());
  }
  for (std::int64_t window = 0; window < 5; ++window) EXPECT_EQ(std::ranges::count(seen, window), 4);
}

TEST(Sampler, EpochsAndSeedsDifferAndAreReproducible) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    const Sampler sampler = make(200, {}, 0, true, seed);
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < 200; ++i) out.push_back(sampler.sequence_at(epoch * 200 + i));
    return out;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_FALSE(std::ranges::is_sorted(order(1, 0)));
  const Sampler plain = make(200, {}, 0, false);
  for (std::int64_t i = 0; i < 500; ++i) ASSERT_EQ(plain.sequence_at(i), i % 200);
  EXPECT_THROW(plain.sequence_at(-1), Error);
}

TEST(Sampler, TheCursorResumesExactly) {
  const Shape shape{.world = 2, .micro_steps = 2, .micro_batch = 3};
  const Sampler straight = make(31, shape, 1);
  Cursor cursor;
  for (int step = 0; step < 7; ++step) straight.next(cursor);
  const Cursor saved = cursor;
  const auto expected = straight.next(cursor);
  Cursor resumed{saved.next};
  const auto found = make(31, shape, 1).next(resumed);
  EXPECT_EQ(resumed.next, cursor.next);
  for (std::size_t m = 0; m < 2; ++m) {
    EXPECT_TRUE(found[m].tokens.equal(expected[m].tokens));
    EXPECT_TRUE(found[m].targets.equal(expected[m].targets));
  }
}

TEST(Sampler, BadOptionsAreBugs) {
  EXPECT_THROW(make(5, {.world = 0}), Error);
  EXPECT_THROW(make(5, {.world = 2}, 2), Error);
  EXPECT_THROW(make(5, {.micro_batch = 0}), Error);
  Cursor cursor{-1};
  EXPECT_THROW(make(5, {}).next(cursor), Error);
}

TEST(Permutation, IsABijectionForEverySize) {
  for (std::int64_t n : {1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 257, 1000, 4097}) {
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<bool> hit(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t to = permuted(i, n, 3, epoch);
        ASSERT_TRUE(to >= 0 && to < n && !hit[static_cast<std::size_t>(to)]) << n;
        hit[static_cast<std::size_t>(to)] = true;
      }
    }
  }
  EXPECT_LT(permuted((std::int64_t{1} << 62) - 1, std::int64_t{1} << 62, 1, 1), std::int64_t{1} << 62);
}

TEST(Permutation, EveryOrderOfThreeComesUpEquallyOften) {
  std::map<std::vector<std::int64_t>, int> count;
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    ++count[{permuted(0, 3, 9, epoch), permuted(1, 3, 9, epoch), permuted(2, 3, 9, epoch)}];
  }
  EXPECT_EQ(count.size(), 6u);
  for (const auto& [order, n] : count) EXPECT_NEAR(n, 1000, 150);  // 5 standard deviations
}

TEST(Permutation, PlacesAreSpreadEvenly) {
  // Where place 0 goes over many epochs, in 10 bins of 1000 sequences; chi-square with 9 degrees of freedom.
  std::vector<double> bins(10);
  constexpr int kEpochs = 5000;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) bins[permuted(0, 1000, 4, epoch) / 100] += 1;
  double chi = 0;
  for (const double n : bins) chi += (n - kEpochs / 10.0) * (n - kEpochs / 10.0) / (kEpochs / 10.0);
  EXPECT_LT(chi, 33.7);  // one in ten thousand
}

}  // namespace
}  // namespace shale

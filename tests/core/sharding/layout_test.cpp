#include "core/sharding/layout.h"

#include <tuple>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

// numel, ways, rank, align -> chunk, begin, length; by hand.
TEST(ShardRange, Vectors) {
  using V = std::tuple<std::int64_t, int, int, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [numel, ways, rank, align, chunk, begin, length] :
       {V{10, 2, 0, 1, 5, 0, 5}, V{10, 2, 1, 1, 5, 5, 5},        // even
        V{10, 3, 0, 1, 4, 0, 4}, V{10, 3, 2, 1, 4, 8, 2},        // the last owns less
        V{10, 4, 2, 4, 4, 8, 2}, V{10, 4, 3, 4, 4, 10, 0},       // or nothing
        V{10, 2, 0, 8, 8, 0, 8}, V{10, 2, 1, 8, 8, 8, 2},        // cuts are multiples of align
        V{3, 8, 2, 1, 1, 2, 1}, V{3, 8, 3, 1, 1, 3, 0},          // more ranks than elements
        V{0, 4, 3, 16, 0, 0, 0}, V{10, 1, 0, 64, 10, 0, 10}}) {  // nothing; a group of one is not padded
    SCOPED_TRACE(str(numel, " elements, rank ", rank, " of ", ways, ", align ", align));
    const auto r = shard_range(numel, ways, rank, align);
    EXPECT_EQ(r.chunk, chunk);
    EXPECT_EQ(r.begin, begin);
    EXPECT_EQ(r.length, length);
  }
}

TEST(ShardRange, EveryElementHasOneOwner) {
  for (std::int64_t numel : {0, 1, 7, 64, 97, 1000, 16296})
    for (int ways : {1, 2, 3, 5, 8, 40})
      for (std::int64_t align : {1, 2, 16, 100}) {
        SCOPED_TRACE(str(numel, " elements, ", ways, " ways, align ", align));
        std::int64_t next = 0;
        const auto chunk = shard_range(numel, ways, 0, align).chunk;
        EXPECT_GE(chunk * ways, numel);
        for (int rank = 0; rank < ways; ++rank) {
          const auto r = shard_range(numel, ways, rank, align);
          EXPECT_EQ(r.chunk, chunk);
          EXPECT_EQ(r.begin, next);
          EXPECT_LE(r.length, chunk);
          EXPECT_TRUE(ways == 1 || r.chunk % align == 0) << r.chunk;
          next = r.begin + r.length;
        }
        EXPECT_EQ(next, numel);
      }
}

TEST(ShardRange, BadArgumentsAreABug) {
  EXPECT_THROW(shard_range(10, 0, 0, 1), Error);
  EXPECT_THROW(shard_range(10, 2, 2, 1), Error);
  EXPECT_THROW(shard_range(10, 2, -1, 1), Error);
  EXPECT_THROW(shard_range(10, 2, 0, 0), Error);
  EXPECT_THROW(shard_range(-1, 2, 0, 1), Error);
}

FlatLayout flat_of(const std::vector<std::int64_t>& sizes) {
  FlatLayout flat;
  for (auto n : sizes) {
    flat.parameters.push_back(static_cast<int>(flat.parameters.size()));
    flat.offsets.push_back(flat.numel);
    flat.numel += n;
  }
  return flat;
}

TEST(Overlap, Vectors) {
  const auto flat = flat_of({4, 6, 2});
  const ShardRange middle{5, 5, 5};  // elements 5..9: all but the first of parameter 1
  EXPECT_EQ(overlap(flat, 0, 4, middle).count, 0);
  const auto cut = overlap(flat, 1, 6, middle);
  EXPECT_EQ(cut.parameter_begin, 1);
  EXPECT_EQ(cut.shard_begin, 0);
  EXPECT_EQ(cut.count, 5);
  EXPECT_EQ(overlap(flat, 2, 2, middle).count, 0);
  const auto whole = overlap(flat, 2, 2, ShardRange{12, 0, 12});
  EXPECT_EQ(whole.parameter_begin, 0);
  EXPECT_EQ(whole.shard_begin, 10);
  EXPECT_EQ(whole.count, 2);
  EXPECT_EQ(overlap(flat, 1, 6, ShardRange{4, 12, 0}).count, 0);  // a rank that owns nothing
}

TEST(Overlap, PiecesCoverEveryParameterOnce) {
  const std::vector<std::int64_t> sizes{1, 24, 97 * 24, 7, 1, 57 * 24};
  const auto flat = flat_of(sizes);
  for (int ways : {1, 2, 3, 5, 64})
    for (std::int64_t align : {1, 16})
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        std::int64_t next = 0;
        for (int rank = 0; rank < ways; ++rank) {
          const auto r = shard_range(flat.numel, ways, rank, align);
          const auto o = overlap(flat, p, sizes[p], r);
          if (o.count == 0) continue;
          EXPECT_EQ(o.parameter_begin, next);
          EXPECT_EQ(r.begin + o.shard_begin, flat.offsets[p] + o.parameter_begin);
          EXPECT_LE(o.shard_begin + o.count, r.length);
          next += o.count;
        }
        EXPECT_EQ(next, sizes[p]) << "parameter " << p << ", " << ways << " ways, align " << align;
      }
}

}  // namespace
}  // namespace shale

#include "core/checkpoint/copy.h"

#include <random>

#include <gtest/gtest.h>

namespace shale {
namespace {

using Dims = std::vector<std::int64_t>;

TEST(Copy, RandomPartsOfRandomBoxes) {
  std::mt19937 random(3);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    Dims shape(static_cast<std::size_t>(pick(0, 4)));
    for (auto& dim : shape) dim = pick(1, 5);
    Box stored = whole(shape), part = stored;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      stored.begin[d] = pick(0, shape[d] - 1);
      stored.extent[d] = pick(1, shape[d] - stored.begin[d]);
      part.begin[d] = stored.begin[d] + pick(0, stored.extent[d] - 1);
      part.extent[d] = pick(1, stored.begin[d] + stored.extent[d] - part.begin[d]);
    }
    std::int64_t seen = 0, last = -1;
    for_each_run(shape, stored, part, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      EXPECT_GT(from, last);
      for (std::int64_t k = 0; k < n; ++k) {  // element `from + k` of the box is element `to + k` of the tensor
        std::int64_t rest = from + k, at = 0, scale = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
          const std::int64_t index = stored.begin[d] + rest % stored.extent[d];
          ASSERT_GE(index, part.begin[d]);
          ASSERT_LT(index, part.begin[d] + part.extent[d]);
          at += index * scale;
          rest /= stored.extent[d];
          scale *= shape[d];
        }
        ASSERT_EQ(at, to + k);
      }
      last = from + n - 1;
      seen += n;
    });
    ASSERT_EQ(seen, part.numel());
  }
}

TEST(Copy, ContiguousPartsAreOneRun) {
  int runs = 0;
  for_each_run({8, 4, 2}, {{2, 0, 0}, {4, 4, 2}}, {{3, 0, 0}, {2, 4, 2}}, [&](auto, auto, std::int64_t n) {
    EXPECT_EQ(n, 16);
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace shale

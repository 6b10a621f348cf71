#include "core/device/block_range.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(block_range, reuses_what_was_freed) {
  const auto range = BlockRange::reserve();
  ASSERT_TRUE(range);
  void* a = range->take(3 * kMiB);
  EXPECT_EQ(range->release(a), 3 * kMiB);
  EXPECT_EQ(range->take(3 * kMiB), a);
}

TEST(block_range, merges_neighbours_on_both_sides) {
  const auto range = BlockRange::reserve(256 * kMiB);
  void* a = range->take(4 * kMiB);
  void* b = range->take(4 * kMiB);
  void* c = range->take(4 * kMiB);
  void* wall = range->take(kMiB);
  range->release(a);
  range->release(c);
  range->release(b);
  EXPECT_EQ(range->take(12 * kMiB), a);
  EXPECT_TRUE(range->owns(wall));
}

TEST(block_range, best_fit_spares_the_long_hole) {
  const auto range = BlockRange::reserve(256 * kMiB);
  void* big = range->take(8 * kMiB);
  void* wall = range->take(kMiB);
  void* small = range->take(2 * kMiB);
  range->take(kMiB);
  range->release(big);
  range->release(small);
  EXPECT_EQ(range->take(2 * kMiB), small);
  EXPECT_EQ(range->take(8 * kMiB), big);
  EXPECT_TRUE(range->owns(wall));
}

TEST(block_range, null_when_it_does_not_fit) {
  const auto range = BlockRange::reserve(64 * kMiB);
  EXPECT_EQ(range->take(65 * kMiB), nullptr);
  EXPECT_EQ(range->take(SIZE_MAX), nullptr);
  void* a = range->take(40 * kMiB);
  ASSERT_TRUE(a);
  EXPECT_EQ(range->take(40 * kMiB), nullptr);
  range->release(a);
  EXPECT_EQ(range->take(40 * kMiB), a);
}

TEST(block_range, no_range_of_no_useful_length) { EXPECT_FALSE(BlockRange::reserve(kMiB)); }

TEST(block_range, freeing_twice_is_a_bug) {
  const auto range = BlockRange::reserve(64 * kMiB);
  void* a = range->take(kMiB);
  range->release(a);
  EXPECT_THROW(range->release(a), Error);
}

TEST(block_range, resident_memory_stays_near_what_is_in_use) {
  const auto range = BlockRange::reserve();
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(range->take(4 * kMiB));
  EXPECT_GE(range->resident(), 256 * kMiB);
  for (int i = 0; i < 64; i += 2) range->release(blocks[i]);  // holes too short for what comes next
  const auto before = range->resident();
  for (int i = 0; i < 8; ++i) range->take(16 * kMiB);
  EXPECT_LE(range->resident(), before + 36 * kMiB);
  EXPECT_LE(range->resident(), range->live() + 36 * kMiB);
}

// What was given back reads as zeros again, and nothing in use is ever touched.
TEST(block_range, random_use_keeps_contents) {
  const auto range = BlockRange::reserve(512 * kMiB);
  std::mt19937 random(7);
  std::map<std::uint8_t*, std::pair<std::size_t, std::uint8_t>> live;
  std::size_t expected = 0;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() < 24 && random() % 2) {
      const std::size_t bytes = kMiB + random() % (6 * kMiB);
      auto* p = static_cast<std::uint8_t*>(range->take(bytes));
      ASSERT_TRUE(p);
      const auto mark = static_cast<std::uint8_t>(random());
      std::memset(p, mark, 64), std::memset(p + bytes - 64, mark, 64);
      live[p] = {bytes, mark};
      expected += bytes;
    } else if (!live.empty()) {
      auto it = std::next(live.begin(), random() % live.size());
      const auto [bytes, mark] = it->second;
      for (int j = 0; j < 64; ++j) {
        ASSERT_EQ(it->first[j], mark);
        ASSERT_EQ(it->first[bytes - 1 - j], mark);
      }
      EXPECT_EQ(range->release(it->first), bytes);
      expected -= bytes;
      live.erase(it);
    }
    ASSERT_GE(range->live(), expected);
    ASSERT_LE(range->live(), expected + live.size() * (kMiB / 16));
  }
  for (const auto& [p, block] : live) range->release(p);
  EXPECT_EQ(range->live(), 0u);
  EXPECT_TRUE(range->take(500 * kMiB));  // everything has merged again
}

}  // namespace
}  // namespace shale

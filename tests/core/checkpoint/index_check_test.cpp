#include "core/checkpoint/index_check.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

using Dims = std::vector<std::int64_t>;
using ::testing::HasSubstr;

StoredBox stored(Box box, std::uint64_t offset = 0) {
  StoredBox out;
  out.box = std::move(box);
  out.file = "f";
  out.offset = offset;
  return out;
}

Item tensor(const std::string& name, Dims shape) {
  Item item;
  item.name = name;
  item.key = "weight";
  item.shape = std::move(shape);
  return item;
}

std::string problem(Index index, std::uint64_t size = 1 << 20) {
  try {
    checked_boxes(
        index, [&](const std::string&) { return size; }, "here");
    return "";
  } catch (const Error& bad) {
    EXPECT_EQ(bad.code(), Code::checkpoint);
    return bad.what();
  }
}

// Cuts a box at random until it has about n parts.
std::vector<StoredBox> tiling(const Dims& shape, std::size_t n, std::mt19937& random) {
  std::vector<StoredBox> out{stored(whole(shape))};
  for (int tries = 0; out.size() < n && tries < 1000; ++tries) {
    StoredBox& victim = out[random() % out.size()];
    const std::size_t d = random() % shape.size();
    if (victim.box.extent[d] < 2) continue;
    const std::int64_t cut = 1 + static_cast<std::int64_t>(random()) % (victim.box.extent[d] - 1);
    StoredBox rest = victim;
    rest.box.begin[d] += cut;
    rest.box.extent[d] -= cut;
    victim.box.extent[d] = cut;
    out.push_back(rest);
  }
  std::ranges::shuffle(out, random);
  return out;
}

TEST(Coverage, TilingsPassAndEveryDefectIsFound) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    Dims shape(1 + random() % 4);
    for (auto& dim : shape) dim = 1 + static_cast<std::int64_t>(random() % 7);
    const std::vector<StoredBox> good = tiling(shape, 1 + random() % 12, random);
    ASSERT_EQ(coverage_problem(shape, good), "");
    std::vector<StoredBox> bad = good;
    bad.pop_back();
    EXPECT_THAT(coverage_problem(shape, bad), HasSubstr("data is missing"));
    bad = good;
    bad.push_back(good[0]);
    EXPECT_THAT(coverage_problem(shape, bad), HasSubstr("overlap"));
    if (good.size() < 2 || good[0].box.numel() != good[1].box.numel()) continue;
    bad = good;
    bad[0] = bad[1];  // the right number of elements, one part twice
    EXPECT_THAT(coverage_problem(shape, bad), HasSubstr("twice and some never"));
  }
}

TEST(Coverage, SpecialShapes) {
  EXPECT_EQ(coverage_problem({}, {stored({})}), "");
  EXPECT_NE(coverage_problem({}, {}), "");
  EXPECT_NE(coverage_problem({}, {stored({}), stored({})}), "");
  EXPECT_EQ(coverage_problem({0, 5}, {}), "");
  const Dims huge{INT64_MAX, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(coverage_problem(huge, {stored(whole(huge))}), "");
  EXPECT_NE(coverage_problem(huge, {stored(whole(huge)), stored(whole(huge))}), "");
}

TEST(Coverage, AGridOfAMillionBoxesIsQuick) {  // a pairwise check would take hours
  std::vector<StoredBox> boxes;
  for (std::int64_t i = 0; i < 1000; ++i)
    for (std::int64_t j = 0; j < 1000; ++j) boxes.push_back(stored({{i * 2, j * 3}, {2, 3}}));
  EXPECT_EQ(coverage_problem({2000, 3000}, boxes), "");
  boxes[777].box.begin[0] += 2;
  EXPECT_NE(coverage_problem({2000, 3000}, boxes), "");
}

TEST(IndexCheck, SortsItemsAndBoxes) {
  Index index{{tensor("b", {4}), tensor("a", {2})},
              {stored({{2}, {2}}, 8), stored({{0}, {2}}), stored({{0}, {2}}, 16)}};
  index.boxes[2].item = 1;
  const auto boxes = checked_boxes(
      index, [](const std::string&) { return std::uint64_t{24}; }, "here");
  EXPECT_EQ(index.items[0].name, "a");
  ASSERT_EQ(boxes[1].size(), 2u);
  EXPECT_EQ(boxes[1][0].box.begin[0], 0);
  EXPECT_EQ(boxes[0][0].bytes, 8u);
}

TEST(IndexCheck, BoundsAreChecked) {
  EXPECT_EQ(problem({{tensor("a", {4})}, {stored(whole({4}))}}, 16), "");
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored(whole({4}))}}, 15),
              HasSubstr("16 bytes at 0 of f lie outside its 15"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored(whole({4}), ~std::uint64_t{0})}}), HasSubstr("lie outside"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored({{1}, {4}})}}), HasSubstr("a box of 4 from 1 in dimension 0 of 4"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored({{-1}, {2}})}}), HasSubstr("from -1"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored({{INT64_MAX}, {2}})}}), HasSubstr("from 9223372036854775807"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored({{0, 0}, {2, 2}})}}),
              HasSubstr("a box of 2 dimensions, the tensor has 1"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {stored({{0}, {2, 2}})}}), HasSubstr("dimensions"));
  StoredBox lost = stored(whole({4}));
  lost.item = 5;
  EXPECT_THAT(problem({{tensor("a", {4})}, {lost}}), HasSubstr("not listed"));
  StoredBox coded = stored(whole({4}));
  coded.token = "t";
  coded.bytes = 15;
  EXPECT_THAT(problem({{tensor("a", {4})}, {coded}}), HasSubstr("a coded box of 15 bytes"));
}

TEST(IndexCheck, EmptyBoxesShadowNothing) {
  EXPECT_EQ(problem({{tensor("a", {4})}, {stored({{0}, {0}}), stored(whole({4})), stored({{4}, {0}})}}), "");
}

TEST(IndexCheck, ItemsAreChecked) {
  EXPECT_THAT(problem({{tensor("a", {1}), tensor("a", {1})}, {}}), HasSubstr("is there twice"));
  EXPECT_THAT(problem({{tensor("a b", {1})}, {}}), HasSubstr("the name or key of an item"));
  EXPECT_THAT(problem({{tensor("a", Dims(9, 1))}, {}}), HasSubstr("9 dimensions"));
  EXPECT_THAT(problem({{tensor("a", {-3})}, {}}), HasSubstr("a dimension is -3"));
  EXPECT_THAT(problem({{tensor("a", {INT64_MAX, 4})}, {}}), HasSubstr("more than 2^63"));
  EXPECT_THAT(problem({{tensor("a", {4})}, {}}), HasSubstr("0 of 4 elements: data is missing"));
  Item odd = tensor("a", {1});
  odd.dtype = at::kComplexFloat;
  EXPECT_THAT(problem({{odd}, {}}), HasSubstr("dtype"));
  Item bytes = tensor("a", {1, 1});
  bytes.kind = ItemKind::bytes;
  EXPECT_THAT(problem({{bytes}, {}}), HasSubstr("one-dimensional"));
  Item value = tensor("v", {});
  value.kind = ItemKind::value;
  EXPECT_EQ(problem({{value}, {}}), "");
  EXPECT_THAT(problem({{value}, {stored({})}}), HasSubstr("has data, but may not"));
}

TEST(IndexCheck, AliasesMustFitTheirTarget) {
  Item alias = tensor("b", {2});
  alias.alias_of = "a";
  EXPECT_EQ(problem({{tensor("a", {2}), alias}, {stored(whole({2}))}}), "");
  EXPECT_THAT(problem({{alias}, {}}), HasSubstr("which is not there"));
  EXPECT_THAT(problem({{tensor("a", {1, 2}), alias}, {stored(whole({1, 2}))}}), HasSubstr("not of its kind"));
  Item circle = tensor("a", {2});
  circle.alias_of = "b";
  EXPECT_THAT(problem({{circle, alias}, {}}), HasSubstr("not of its kind"));
}

}  // namespace
}  // namespace shale

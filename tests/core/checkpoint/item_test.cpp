#include "core/checkpoint/item.h"

#include <set>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

using Dims = std::vector<std::int64_t>;

// Row-major numbers of a box's elements, in the order in which the box holds them.
std::vector<std::int64_t> elements(const Dims& shape, const Box& box) {
  std::vector<std::int64_t> out;
  for (std::int64_t k = 0; k < box.numel(); ++k) {
    std::int64_t rest = k, at = 0, scale = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += (box.begin[d] + rest % box.extent[d]) * scale;
      rest /= box.extent[d];
      scale *= shape[d];
    }
    out.push_back(at);
  }
  return out;
}

TEST(Boxes, EveryRangeOfManyShapes) {
  for (const Dims& shape :
       {Dims{}, Dims{1}, Dims{5}, Dims{1, 1, 1}, Dims{3, 4}, Dims{4, 1, 3}, Dims{2, 3, 4}, Dims{3, 2, 1, 2}}) {
    const std::int64_t n = whole(shape).numel();
    for (std::int64_t begin = 0; begin <= n; ++begin)
      for (std::int64_t end = begin; end <= n; ++end) {
        std::vector<std::int64_t> found;
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        EXPECT_LE(boxes.size(), std::max<std::size_t>(2 * shape.size(), 2) - 1);
        for (const Box& box : boxes) {
          EXPECT_FALSE(box.empty());
          for (const std::int64_t e : elements(shape, box)) found.push_back(e);
        }
        ASSERT_EQ(found.size(), static_cast<std::size_t>(end - begin));
        for (std::size_t k = 0; k < found.size(); ++k) ASSERT_EQ(found[k], begin + static_cast<std::int64_t>(k));
      }
  }
}

TEST(Boxes, WholeTensorIsOneBox) {
  EXPECT_EQ(boxes_of_range({4, 5, 6}, 0, 120), std::vector<Box>{whole({4, 5, 6})});
  EXPECT_EQ(boxes_of_range({}, 0, 1), std::vector<Box>{Box{}});
  EXPECT_TRUE(boxes_of_range({0, 3}, 0, 0).empty());
}

TEST(Boxes, RangeOutsideIsABug) {
  EXPECT_THROW(boxes_of_range({3}, 0, 4), Error);
  EXPECT_THROW(boxes_of_range({3}, -1, 2), Error);
  EXPECT_THROW(boxes_of_range({3}, 2, 1), Error);
}

TEST(Boxes, Intersection) {
  EXPECT_EQ(intersect({{0, 2}, {3, 4}}, {{2, 0}, {5, 3}}), (Box{{2, 2}, {1, 1}}));
  EXPECT_TRUE(intersect({{0}, {2}}, {{2}, {2}}).empty());
  EXPECT_TRUE(intersect({{9}, {2}}, {{0}, {2}}).empty());
  EXPECT_FALSE(intersect({}, {}).empty());
}

TEST(Items, NamesAreRefusedWithReason) {
  EXPECT_EQ(name_problem("model.layers.0.weight"), "");
  EXPECT_EQ(name_problem(std::string(255, 'x')), "");
  for (const std::string& bad : {std::string(), std::string(256, 'x'), std::string("a b"), std::string("a\nb"),
                                 std::string("a\"b"), std::string("a\\b"), std::string("a\0b", 3), std::string("a'b")})
    EXPECT_NE(name_problem(bad), "") << bad;
}

TEST(Items, SizesDoNotOverflow) {
  EXPECT_EQ(checked_numel({3, 4}, 8, "x"), 12);
  EXPECT_EQ(checked_numel({}, 8, "x"), 1);
  EXPECT_EQ(checked_numel({5, 0}, 8, "x"), 0);
  EXPECT_THROW(checked_numel({INT64_MAX, 2}, 1, "x"), Error);
  EXPECT_THROW(checked_numel({INT64_MAX / 2}, 4, "x"), Error);
  EXPECT_THROW(checked_numel({0, INT64_MAX, 2}, 1, "x"), Error);  // a zero hides no overflow
  EXPECT_THROW(checked_numel({-1}, 1, "x"), Error);
}

TEST(Items, DtypeNamesGoBothWays) {
  for (const at::ScalarType t :
       {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool})
    EXPECT_EQ(dtype_of_name(dtype_name(t), "x"), t);
  EXPECT_STREQ(dtype_name(at::kComplexFloat), "");
  EXPECT_THROW(dtype_of_name("Float32", "x"), Error);
}

TEST(Items, OrderIsRoleNameKey) {
  Item a, b;
  a.name = b.name = "x";
  a.key = "a", b.key = "b";
  EXPECT_TRUE(item_before(a, b));
  b.role = ItemRole::optimizer;
  EXPECT_TRUE(item_before(a, b));
  EXPECT_FALSE(item_before(a, a));
  EXPECT_EQ(b.id(), "optimizer/x/b");
}

}  // namespace
}  // namespace shale

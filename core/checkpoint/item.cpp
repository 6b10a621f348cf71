#include "core/checkpoint/item.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::size_t kLongestName = 255;

const char* role_name(ItemRole role) {
  switch (role) {
    case ItemRole::weight:
      return "weight";
    case ItemRole::optimizer:
      return "optimizer";
    case ItemRole::run:
      return "run";
    case ItemRole::plugin:
      return "plugin";
    case ItemRole::buffer:
      return "buffer";
  }
  return "unknown";
}

struct DtypeName {
  at::ScalarType dtype;
  const char* name;
};
constexpr std::array<DtypeName, 12> kDtypes{{{at::kDouble, "float64"},
                                             {at::kFloat, "float32"},
                                             {at::kBFloat16, "bfloat16"},
                                             {at::kHalf, "float16"},
                                             {at::kLong, "int64"},
                                             {at::kInt, "int32"},
                                             {at::kShort, "int16"},
                                             {at::kChar, "int8"},
                                             {at::kByte, "uint8"},
                                             {at::kBool, "bool"},
                                             {at::kFloat8_e4m3fn, "float8_e4m3fn"},
                                             {at::kFloat8_e5m2, "float8_e5m2"}}};

using Dims = std::vector<std::int64_t>;

std::int64_t product(const Dims& dims, std::size_t from) {
  std::int64_t n = 1;
  for (std::size_t d = from; d < dims.size(); ++d) n *= dims[d];
  return n;
}

// A range inside a block is: the tail of its first row, the whole rows between, the head of its last row; head and tail
// are ranges inside a smaller block.
struct Cutter {
  const Dims& shape;
  std::vector<Box> out;

  // Elements [begin, end) of the block that `at` fixes in dimensions < d.
  void cut(const Box& at, std::size_t d, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    if (d == shape.size()) return out.push_back(at);
    const std::int64_t row = product(shape, d + 1);
    const std::int64_t first = begin / row, last = end / row;  // `last` is the row that the end lies in
    const auto inside = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
      Box next = at;
      next.begin[d] = index;
      next.extent[d] = 1;
      cut(next, d + 1, from, to);
    };
    if (first == last) return inside(first, begin - first * row, end - first * row);
    std::int64_t whole_from = first;
    if (begin % row != 0) {
      inside(first, begin - first * row, row);
      ++whole_from;
    }
    if (whole_from < last) {
      Box& middle = out.emplace_back(at);  // still whole in the dimensions behind d
      middle.begin[d] = whole_from;
      middle.extent[d] = last - whole_from;
    }
    if (end % row != 0) inside(last, 0, end - last * row);
  }
};

}  // namespace

std::string Item::id() const { return str(role_name(role), "/", name, "/", key); }

std::int64_t Box::numel() const { return product(extent, 0); }

bool item_before(const Item& a, const Item& b) {
  return std::tie(a.role, a.name, a.key) < std::tie(b.role, b.name, b.key);
}

std::string name_problem(const std::string& name) {
  if (name.empty()) return "is empty";
  if (name.size() > kLongestName) return str("has ", name.size(), " bytes, the most is ", kLongestName);
  const auto bad = [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '"' || c == '\'' || c == '\\'; };
  return std::ranges::any_of(name, bad) ? "holds a blank, control character, quote or backslash" : "";
}

std::int64_t checked_numel(const Dims& shape, std::size_t width, const std::string& where) {
  std::int64_t n = 1, room = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(width);
  bool none = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) fail(Code::checkpoint, where, ": a dimension is ", dim);
    if (dim == 0) none = true;
    if (dim > 0 && n > room / dim) fail(Code::checkpoint, where, ": the shape has more than 2^63 bytes");
    if (dim > 0) n *= dim;
  }
  return none ? 0 : n;
}

const char* dtype_name(at::ScalarType dtype) {
  for (const DtypeName& known : kDtypes)
    if (known.dtype == dtype) return known.name;
  return "";
}

at::ScalarType dtype_of_name(const std::string& name, const std::string& where) {
  for (const DtypeName& known : kDtypes)
    if (name == known.name) return known.dtype;
  fail(Code::checkpoint, where, ": unknown dtype '", name.substr(0, 32), "'");
}

Box whole(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }

std::vector<Box> boxes_of_range(const Dims& shape, std::int64_t begin, std::int64_t end) {
  check(begin >= 0 && begin <= end && end <= product(shape, 0), "range [", begin, ", ", end, ") of a tensor with ",
        product(shape, 0), " elements");
  Cutter cutter{shape, {}};
  cutter.cut(whole(shape), 0, begin, end);
  return std::move(cutter.out);
}

Box intersect(const Box& a, const Box& b) {
  check(a.begin.size() == b.begin.size(), "boxes of ", a.begin.size(), " and ", b.begin.size(), " dimensions");
  Box out = a;
  for (std::size_t d = 0; d < a.begin.size(); ++d) {
    out.begin[d] = std::max(a.begin[d], b.begin[d]);
    out.extent[d] =
        std::max<std::int64_t>(0, std::min(a.begin[d] + a.extent[d], b.begin[d] + b.extent[d]) - out.begin[d]);
  }
  return out;
}

}  // namespace shale

// The things a snapshot holds: named tensors, byte strings and values, and the boxes tensors are cut into.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <c10/core/ScalarType.h>

namespace shale {

enum class ItemKind : std::uint32_t { tensor = 1, bytes = 2, value = 3 };
enum class ItemRole : std::uint32_t { weight = 1, optimizer = 2, run = 3, plugin = 4, buffer = 5 };

using ItemValue = std::variant<std::int64_t, double, std::string>;

// (role, name, key) is unique. Spelling of names and keys: SHALE_ROLE_... in sdk/include/shale/checkpoint.h.
struct Item {
  ItemKind kind = ItemKind::tensor;
  ItemRole role = ItemRole::weight;
  std::string name, key;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;  // of the whole tensor
  ItemValue value;                  // kind value only
  std::string alias_of;             // tied: the parameter whose bytes these are; then there is no data
  std::string id() const;           // "weight/model.norm.weight/weight", unique and sortable
};

// An n-d sub-range: begin and extent per dimension, in elements. A 0-d tensor has the empty box.
struct Box {
  std::vector<std::int64_t> begin, extent;
  std::int64_t numel() const;
  bool empty() const { return numel() == 0; }
  bool operator==(const Box&) const = default;
};

// The order of items in files and lists: by role, name, key.
bool item_before(const Item&, const Item&);
// "" or what is wrong with a name or key: 1..255 bytes, no blanks, control characters, quotes or backslashes.
std::string name_problem(const std::string&);
// Elements of a shape; Error{checkpoint} when a dimension is negative or the bytes exceed 63 bits.
std::int64_t checked_numel(const std::vector<std::int64_t>& shape, std::size_t width, const std::string& where);
const char* dtype_name(at::ScalarType);  // "float32"; "" for one that no snapshot holds
// Of such a name; Error{checkpoint} for another.
at::ScalarType dtype_of_name(const std::string&, const std::string& where);

Box whole(const std::vector<std::int64_t>& shape);
// Elements [begin, end) of the row-major order as at most 2 ndim - 1 boxes, in order.
std::vector<Box> boxes_of_range(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end);
// The common part; extent 0 in some dimension when there is none.
Box intersect(const Box&, const Box&);

}  // namespace shale

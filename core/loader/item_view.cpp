#include "core/loader/item_view.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/loader/dtypes.h"

namespace shale {
namespace {

shale_status* corrupt(const std::string& where, const std::string& text) {
  return make_status(SHALE_CORRUPT, one_line(where), text);
}

shale_status* value_from_c(const shale_value* v, const std::string& where, ItemValue& out) {
  if (v == nullptr) return corrupt(where, "is of kind VALUE but has no value");
  switch (v->type) {
    case SHALE_OPT_BOOL:
    case SHALE_OPT_INT:
    case SHALE_OPT_BYTES:
      out = v->i;
      return nullptr;
    case SHALE_OPT_FLOAT:
    case SHALE_OPT_SECONDS:
      out = v->f;
      return nullptr;
    case SHALE_OPT_TEXT:
    case SHALE_OPT_CHOICE:
    case SHALE_OPT_PATH:
      out = to_text(v->s);
      return nullptr;
    default:
      return corrupt(where, str("has a value of type ", v->type, ", which this shale does not know"));
  }
}

shale_status* read_shape(const shale_item& c, const std::string& where, Item& out) {
  if (c.ndim > SHALE_MAX_DIMS) return corrupt(where, str("has ", c.ndim, " dimensions; at most ", SHALE_MAX_DIMS));
  out.shape.assign(c.shape, c.shape + c.ndim);
  for (const std::int64_t n : out.shape)
    if (n < 0) return corrupt(where, str("has a dimension of ", n));
  const auto dtype = dtype_from_c(c.dtype);
  if (!dtype) return corrupt(where, str("has dtype ", c.dtype, ", which this shale does not know"));
  out.dtype = *dtype;
  return nullptr;
}

}  // namespace

shale_value value_to_c(const ItemValue& value) {
  shale_value c{};
  c.is_set = 1;
  if (const auto* i = std::get_if<std::int64_t>(&value)) c.type = SHALE_OPT_INT, c.i = *i;
  if (const auto* f = std::get_if<double>(&value)) c.type = SHALE_OPT_FLOAT, c.f = *f;
  if (const auto* s = std::get_if<std::string>(&value)) c.type = SHALE_OPT_TEXT, c.s = to_c(*s);
  return c;
}

shale_item item_to_c(const Item& item, const shale_value* value) {
  check(item.shape.size() <= SHALE_MAX_DIMS, item.id(), " has ", item.shape.size(), " dimensions");
  shale_item c{};
  c.struct_size = sizeof c;
  c.kind = static_cast<std::uint32_t>(item.kind), c.role = static_cast<std::uint32_t>(item.role);
  c.dtype = item.kind == ItemKind::value ? 0 : dtype_to_c(item.dtype);
  c.name = to_c(item.name), c.key = to_c(item.key), c.alias_of = to_c(item.alias_of);
  c.ndim = static_cast<std::uint32_t>(item.shape.size());
  std::copy(item.shape.begin(), item.shape.end(), c.shape);
  c.value = value;
  return c;
}

shale_box box_to_c(const Box& box) {
  check(box.begin.size() <= SHALE_MAX_DIMS && box.begin.size() == box.extent.size(), "a box of ", box.begin.size(),
        " dimensions");
  shale_box c{};
  c.struct_size = sizeof c, c.ndim = static_cast<std::uint32_t>(box.begin.size());
  std::copy(box.begin.begin(), box.begin.end(), c.begin);
  std::copy(box.extent.begin(), box.extent.end(), c.extent);
  return c;
}

shale_status* item_from_c(const shale_item* theirs, Item& out) {
  shale_item c;
  if (!take(theirs, c)) return make_status(SHALE_BAD_ARGUMENT, "item", "is NULL or too short");
  if (c.name.len > 255 || c.key.len > 255 || c.alias_of.len > 255)
    return corrupt("item", "a name or key has more than 255 bytes");
  out = Item{};
  out.name = to_text(c.name), out.key = to_text(c.key), out.alias_of = to_text(c.alias_of);
  const std::string where = out.name + "/" + out.key;
  if (c.kind < SHALE_ITEM_TENSOR || c.kind > SHALE_ITEM_VALUE) return corrupt(where, str("is of kind ", c.kind));
  if (c.role < SHALE_ROLE_WEIGHT || c.role > SHALE_ROLE_BUFFER) return corrupt(where, str("has the role ", c.role));
  out.kind = static_cast<ItemKind>(c.kind), out.role = static_cast<ItemRole>(c.role);
  if (out.kind == ItemKind::value) return value_from_c(c.value, where, out.value);
  if (out.kind == ItemKind::bytes && c.dtype == 0) c.dtype = SHALE_U8;
  return read_shape(c, where, out);
}

shale_status* box_from_c(const shale_box* theirs, Box& out) {
  shale_box c;
  if (!take(theirs, c)) return make_status(SHALE_BAD_ARGUMENT, "box", "is NULL or too short");
  if (c.ndim > SHALE_MAX_DIMS) return corrupt("box", str("has ", c.ndim, " dimensions; at most ", SHALE_MAX_DIMS));
  out.begin.assign(c.begin, c.begin + c.ndim);
  out.extent.assign(c.extent, c.extent + c.ndim);
  for (std::size_t d = 0; d < out.begin.size(); ++d)
    if (out.begin[d] < 0 || out.extent[d] < 0)
      return corrupt("box", str("begins at ", out.begin[d], " and has ", out.extent[d], " elements"));
  return nullptr;
}

}  // namespace shale

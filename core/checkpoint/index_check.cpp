#include "core/checkpoint/index_check.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::size_t kMostDims = 8;

void check_item(const Item& item, const std::string& where) {
  for (const std::string* name : {&item.name, &item.key}) {
    const std::string problem = name_problem(*name);
    if (!problem.empty()) fail(Code::checkpoint, where, ": the name or key of an item ", problem);
  }
  const std::string at = where + ": " + item.id();
  if (item.kind == ItemKind::value) return;
  if (item.shape.size() > kMostDims) fail(Code::checkpoint, at, ": ", item.shape.size(), " dimensions, the most is 8");
  if (*dtype_name(item.dtype) == '\0') fail(Code::checkpoint, at, ": a dtype that no snapshot holds");
  checked_numel(item.shape, c10::elementSize(item.dtype), at);
  if (item.kind == ItemKind::bytes && (item.dtype != at::kByte || item.shape.size() != 1))
    fail(Code::checkpoint, at, ": byte strings are one-dimensional and of dtype uint8");
}

void check_alias(const std::vector<Item>& items, const Item& alias, const std::string& where) {
  Item wanted;
  wanted.role = alias.role;
  wanted.name = alias.alias_of;
  wanted.key = alias.key;
  const auto at = std::ranges::lower_bound(items, wanted, item_before);
  if (at == items.end() || item_before(wanted, *at))
    fail(Code::checkpoint, where, ": ", alias.id(), " is tied to ", wanted.id(), ", which is not there");
  if (at->kind != alias.kind || at->dtype != alias.dtype || at->shape != alias.shape || !at->alias_of.empty())
    fail(Code::checkpoint, where, ": ", alias.id(), " is tied to ", wanted.id(), ", which is not of its kind");
}

void check_box(const Item& item, StoredBox& stored, const FileSize& size_of, const std::string& where) {
  const std::string at = where + ": " + item.id();
  const Box& box = stored.box;
  const std::size_t dims = item.shape.size();
  if (item.kind == ItemKind::value || !item.alias_of.empty()) fail(Code::checkpoint, at, ": has data, but may not");
  if (box.begin.size() != dims || box.extent.size() != dims)
    fail(Code::checkpoint, at, ": a box of ", box.begin.size(), " dimensions, the tensor has ", dims);
  for (std::size_t d = 0; d < dims; ++d)
    if (box.begin[d] < 0 || box.extent[d] < 0 || box.extent[d] > item.shape[d] ||
        box.begin[d] > item.shape[d] - box.extent[d])
      fail(Code::checkpoint, at, ": a box of ", box.extent[d], " from ", box.begin[d], " in dimension ", d, " of ",
           item.shape[d]);
  const std::uint64_t bytes = static_cast<std::uint64_t>(box.numel()) * c10::elementSize(item.dtype);
  if (!stored.token.empty()) {
    if (stored.bytes != bytes)
      fail(Code::checkpoint, at, ": a coded box of ", stored.bytes, " bytes, its elements take ", bytes);
    return;
  }
  stored.bytes = bytes;
  if (bytes == 0) return;
  const std::uint64_t size = size_of(stored.file);
  if (stored.offset > size || bytes > size - stored.offset)
    fail(Code::checkpoint, at, ": ", bytes, " bytes at ", stored.offset, " of ", stored.file, " lie outside its ", size,
         " bytes");
}

// Row-major numbers of a box's corners in the grid of all corners, (shape + 1) per dimension. 128 bits hold them: a
// shape of at most 2^63 elements has at most 2^71 corners. `odd`: those that count -1.
using Corners = std::vector<unsigned __int128>;
void add_corners(const std::vector<std::int64_t>& shape, const Box& box, Corners& even, Corners& odd) {
  const std::size_t dims = shape.size();
  for (std::size_t mask = 0; mask < std::size_t{1} << dims; ++mask) {
    unsigned __int128 corner = 0;
    bool negative = false;
    for (std::size_t d = 0; d < dims; ++d) {
      const bool end = (mask >> d & 1) != 0;
      corner = corner * (static_cast<unsigned __int128>(shape[d]) + 1) +
               static_cast<unsigned __int128>(box.begin[d] + (end ? box.extent[d] : 0));
      negative ^= end;
    }
    (negative ? odd : even).push_back(corner);
  }
}

}  // namespace

// The signed corner sums of a set of boxes determine how often each element is covered, exactly (they are its mixed
// difference). So the boxes tile the tensor if and only if their corners cancel to those of the whole: one sort,
// however the boxes lie.
std::string coverage_problem(const std::vector<std::int64_t>& shape, const std::vector<StoredBox>& boxes) {
  const Box all = whole(shape);
  Corners even, odd;
  if (!all.empty()) add_corners(shape, all, odd, even);  // subtracted
  for (const StoredBox& stored : boxes) add_corners(shape, stored.box, even, odd);
  std::ranges::sort(even);
  std::ranges::sort(odd);
  if (even == odd) return "";
  unsigned __int128 covered = 0;
  for (const StoredBox& stored : boxes) covered += static_cast<unsigned __int128>(stored.box.numel());
  const auto total = static_cast<unsigned __int128>(all.numel());
  if (covered < total)
    return str("boxes hold ", static_cast<std::int64_t>(covered), " of ", all.numel(), " elements: data is missing");
  if (covered > total) return str("boxes overlap: they hold more than the ", all.numel(), " elements of the tensor");
  return str("boxes overlap and leave a hole: they hold some of the ", all.numel(), " elements twice and some never");
}

std::vector<std::vector<StoredBox>> checked_boxes(Index& index, const FileSize& size_of, const std::string& where) {
  for (const Item& item : index.items) check_item(item, where);
  std::vector<std::size_t> order(index.items.size()), place(index.items.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return item_before(index.items[a], index.items[b]); });
  std::vector<Item> items;
  for (std::size_t k = 0; k < order.size(); ++k) {
    place[order[k]] = k;
    items.push_back(std::move(index.items[order[k]]));
    if (k > 0 && !item_before(items[k - 1], items[k]))
      fail(Code::checkpoint, where, ": ", items[k].id(), " is there twice");
  }
  index.items = std::move(items);
  std::vector<std::vector<StoredBox>> out(index.items.size());
  for (StoredBox& stored : index.boxes) {
    if (stored.item >= place.size()) fail(Code::checkpoint, where, ": a box of an item that is not listed");
    stored.item = place[stored.item];
    check_box(index.items[stored.item], stored, size_of, where);
    if (!stored.box.empty()) out[stored.item].push_back(std::move(stored));
  }
  index.boxes.clear();
  for (std::size_t k = 0; k < out.size(); ++k) {
    const Item& item = index.items[k];
    if (item.kind == ItemKind::value) continue;
    if (!item.alias_of.empty()) {
      check_alias(index.items, item, where);
      continue;
    }
    std::ranges::sort(
        out[k], {}, [](const StoredBox& s) -> const auto& { return s.box.begin; });
    const std::string problem = coverage_problem(item.shape, out[k]);
    if (!problem.empty()) fail(Code::checkpoint, where, ": ", item.id(), ": ", problem);
  }
  return out;
}

}  // namespace shale

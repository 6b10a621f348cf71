#include "core/loader/index_sink.h"

#include "core/loader/item_view.h"

namespace shale {

struct IndexSink::Calls {
  static IndexSink& me(void* ctx) { return *static_cast<IndexSink*>(ctx); }

  static shale_status* add_item(void* ctx, const shale_item* theirs, std::uint32_t* item) {
    auto& items = me(ctx).index_.items;
    return me(ctx).answer([&]() -> shale_status* {
      Item read;
      if (auto* problem = item_from_c(theirs, read)) return problem;
      if (item != nullptr) *item = static_cast<std::uint32_t>(items.size());
      items.push_back(std::move(read));
      return nullptr;
    });
  }
  static shale_status* add_raw(void* ctx, std::uint32_t item, const shale_box* box, shale_str file,
                               std::uint64_t offset) {
    return me(ctx).answer([&]() -> shale_status* {
      if (file.ptr == nullptr || file.len == 0 || file.len > 255)
        return make_status(SHALE_CORRUPT, "file", str("whose name has ", file.len, " bytes, not 1..255"));
      StoredBox stored;
      stored.file = to_text(file), stored.offset = offset;
      return me(ctx).add(item, box, std::move(stored));
    });
  }
  static shale_status* add_coded(void* ctx, std::uint32_t item, const shale_box* box, shale_str token,
                                 std::uint64_t n) {
    constexpr std::uint64_t kLongest = 256;
    return me(ctx).answer([&]() -> shale_status* {
      if (token.ptr == nullptr || token.len == 0 || token.len > kLongest)
        return bad_argument("token", str("has ", token.len, " bytes, not 1..", kLongest));
      if (n > INT64_MAX) return make_status(SHALE_CORRUPT, "n", str("is ", n));
      StoredBox stored;
      stored.token = to_text(token), stored.bytes = n;
      return me(ctx).add(item, box, std::move(stored));
    });
  }
};

IndexSink::IndexSink() { c_ = {sizeof c_, 0, this, Calls::add_item, Calls::add_raw, Calls::add_coded}; }

shale_status* IndexSink::add(std::uint32_t item, const shale_box* box, StoredBox stored) {
  if (item >= index_.items.size())
    return bad_argument("item", str("is ", item, ", there are ", index_.items.size(), " items"));
  Item& of = index_.items[item];
  stored.item = item;
  const bool bare = of.kind == ItemKind::bytes && of.shape.empty();  // its length is known only now
  if (bare && stored.token.empty())
    return make_status(SHALE_CORRUPT, of.id(), "is of kind BYTES, lies plainly in a file and has no shape {length}");
  if (bare) of.shape = {static_cast<std::int64_t>(stored.bytes)};
  if (box != nullptr) {
    if (auto* problem = box_from_c(box, stored.box)) return problem;
  } else {
    stored.box = whole(of.shape);
  }
  index_.boxes.push_back(std::move(stored));
  return nullptr;
}

}  // namespace shale

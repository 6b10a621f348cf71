#include "core/checkpoint/entries.h"

#include <algorithm>

#include "core/base/error.h"

namespace shale {
namespace {

bool entry_before(const WriteEntry& a, const WriteEntry& b) {
  if (item_before(*a.item, *b.item)) return true;
  if (item_before(*b.item, *a.item) || !a.box || !b.box) return false;
  return a.box->begin < b.box->begin;
}

// A host copy of elements [begin, begin + n). `staged` is one for all entries, so the host never holds more than one.
std::function<const void*()> host_bytes(const at::Tensor& data, std::int64_t begin, std::int64_t n,
                                        const std::shared_ptr<at::Tensor>& staged) {
  if (data.is_cpu()) {
    const auto* bytes = static_cast<const char*>(data.const_data_ptr()) + begin * data.element_size();
    return [bytes] { return bytes; };
  }
  return [data, begin, n, staged] {
    *staged = at::Tensor();  // before the next one is made
    *staged = data.narrow(0, begin, n).to(at::kCPU);
    return staged->const_data_ptr();
  };
}

// The same of a tensor that is fetched when it is asked for.
std::function<const void*()> fetched(const Piece& piece, const std::shared_ptr<at::Tensor>& staged) {
  return [&piece, staged] {
    *staged = at::Tensor();  // before the next one is made
    *staged = piece.load();
    check(staged->scalar_type() == piece.item.dtype && staged->is_contiguous(), piece.item.id(), ": fetched wrongly");
    return staged->const_data_ptr();
  };
}

void check_names(const Item& item) {
  for (const std::string* name : {&item.name, &item.key}) {
    const std::string problem = name_problem(*name);
    if (!problem.empty()) fail(Code::checkpoint, "snapshot item ", item.id(), ": its name or key ", problem);
  }
}

}  // namespace

Entries::Entries(const SnapshotSpec& spec, CheckpointFormat& format, bool leader)
    : traits_(format.traits()), format_(format.id()) {
  for (const Piece& piece : spec.pieces) add_piece(piece);
  if (leader)
    for (const Item& item : spec.items) add_item(item);
  std::ranges::sort(entries_, entry_before);
  cut_into_parts();
}

void Entries::add_piece(const Piece& piece) {
  const Item& item = piece.item;
  const std::string id = item.id();
  check_names(item);
  check(item.kind == ItemKind::tensor && item.alias_of.empty(), id, ": a piece must be of a tensor with data");
  if (piece.load) return add_whole(piece);
  check(piece.data.dim() == 1 && piece.data.is_contiguous() && piece.data.scalar_type() == item.dtype, id,
        ": a piece must be 1-d, contiguous and of the item's dtype");
  check_held(item);
  const std::int64_t width = piece.data.element_size(), n = piece.data.numel();
  const std::int64_t total = checked_numel(item.shape, static_cast<std::size_t>(width), id);
  check(piece.begin >= 0 && piece.begin <= total && n <= total - piece.begin, id, ": elements ", piece.begin, " + ", n,
        " of ", total);
  if (total == 0) return beside_.push_back(item);
  if (!traits_.boxes && n != 0 && n != total)
    fail(Code::checkpoint, id, ": the checkpoint format '", format_,
         "' holds whole tensors only and this one is cut over ranks; save with another format and convert");
  std::int64_t at = 0;
  for (Box& box : boxes_of_range(item.shape, piece.begin, piece.begin + n)) {
    const std::int64_t elements = box.numel();
    boxes_.push_back(std::move(box));
    entries_.push_back({&item, &boxes_.back(), static_cast<std::uint64_t>(elements * width),
                        host_bytes(piece.data, at, elements, staged_)});
    at += elements;
  }
  tensor_bytes_ += static_cast<std::uint64_t>(n * width);
}

void Entries::add_whole(const Piece& piece) {
  check_held(piece.item);
  const auto width = c10::elementSize(piece.item.dtype);
  const std::int64_t total = checked_numel(piece.item.shape, width, piece.item.id());
  if (total == 0) return beside_.push_back(piece.item);
  boxes_.push_back(whole(piece.item.shape));
  const auto bytes = static_cast<std::uint64_t>(total) * width;
  entries_.push_back({&piece.item, &boxes_.back(), bytes, fetched(piece, staged_)});
  tensor_bytes_ += bytes;
}

void Entries::check_held(const Item& item) const {
  if (std::ranges::find(traits_.dtypes, item.dtype) == traits_.dtypes.end())
    fail(Code::checkpoint, item.id(), ": the checkpoint format '", format_, "' cannot hold ", dtype_name(item.dtype));
  if (item.role == ItemRole::optimizer && !traits_.optimizer)
    fail(Code::checkpoint, item.id(), ": the checkpoint format '", format_, "' cannot hold optimizer state");
}

void Entries::add_item(const Item& item) {
  check_names(item);
  const auto nothing = [] { return static_cast<const void*>(""); };
  if (item.kind == ItemKind::tensor) {
    check(!item.alias_of.empty(), item.id(), ": a tensor among the items must be an alias");
    if (traits_.aliases)
      entries_.push_back({&item, nullptr, 0, nothing});
    else
      beside_.push_back(item);
  } else if (item.kind == ItemKind::value) {
    if (traits_.values)
      entries_.push_back({&item, nullptr, 0, nothing});
    else
      beside_.push_back(item);
  } else {
    const auto* bytes = std::get_if<std::string>(&item.value);
    check(bytes != nullptr, item.id(), ": a byte string must hold text");
    if (!traits_.bytes || bytes->empty()) return beside_.push_back(item);
    Item& sized = items_.emplace_back(item);
    sized.dtype = at::kByte;
    sized.shape = {static_cast<std::int64_t>(bytes->size())};
    entries_.push_back({&sized, nullptr, bytes->size(), [bytes] { return static_cast<const void*>(bytes->data()); }});
  }
}

void Entries::cut_into_parts() {
  const std::span<const WriteEntry> all(entries_);
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const bool full = traits_.file_bytes != 0 && bytes + all[k].bytes > traits_.file_bytes;
    if (full && k > begin) {
      parts_.push_back(all.subspan(begin, k - begin));
      begin = k;
      bytes = 0;
    }
    bytes += all[k].bytes;
  }
  if (begin < all.size()) parts_.push_back(all.subspan(begin));
}

}  // namespace shale

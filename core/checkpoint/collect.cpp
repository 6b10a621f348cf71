#include "core/checkpoint/collect.h"

#include <algorithm>
#include <map>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/checkpoint/json.h"

namespace shale {
namespace {

constexpr const char* kWhere = "pieces of a snapshot";
constexpr int kTags = 1 << 29;

struct Part {
  int rank = 0;
  std::int64_t begin = 0, n = 0;
  std::size_t piece = 0;  // position in that rank's list
};

struct Tensor {
  Item item;
  std::int64_t numel = 0;
  std::vector<Part> parts;
  int writer = 0;
};

std::string describe(const std::vector<Piece>& pieces) {
  Json list = Json::array();
  for (const Piece& p : pieces) list.push_back(Json::array({item_to_json(p.item), p.begin, p.data.numel()}));
  return json_text(list, kWhere);
}

// By id, so that all ranks see one order.
std::map<std::string, Tensor> all_tensors(Group& group, const std::vector<Piece>& pieces) {
  std::map<std::string, Tensor> out;
  const auto lists = all_gather_text(group, describe(pieces));
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    std::size_t k = 0;
    for (const Json& entry : parse_json(lists[rank], kWhere)) {
      Item item = item_from_json(entry.at(0), kWhere);
      auto& t = out[item.id()];
      t.numel = checked_numel(item.shape, c10::elementSize(item.dtype), item.id());
      t.parts.push_back(
          {static_cast<int>(rank), entry.at(1).get<std::int64_t>(), entry.at(2).get<std::int64_t>(), k++});
      check(t.parts.size() == 1 || (t.item.shape == item.shape && t.item.dtype == item.dtype), item.id(),
            ": ranks disagree on its shape or type");
      t.item = std::move(item);
    }
  }
  return out;
}

// What nobody wrote would be whatever the memory held.
void check_whole(const std::string& id, Tensor& t) {
  std::ranges::sort(t.parts, {}, &Part::begin);
  std::int64_t end = 0;
  for (const Part& part : t.parts) {
    if (part.n == 0) continue;
    check(part.begin == end, id, ": its pieces leave a hole or overlap at element ", end);
    end += part.n;
  }
  check(end == t.numel, id, ": its pieces hold ", end, " of ", t.numel, " elements");
}

void choose_writers(std::map<std::string, Tensor>& tensors, int ranks, bool one_writer) {
  std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks), 0);
  for (auto& [id, t] : tensors) {
    const bool whole = t.parts.size() == 1;
    const auto least = std::ranges::min_element(load);
    t.writer = one_writer ? 0 : whole ? t.parts.front().rank : static_cast<int>(least - load.begin());
    load[static_cast<std::size_t>(t.writer)] += static_cast<std::uint64_t>(t.numel) * c10::elementSize(t.item.dtype);
  }
}

// Moves the parts of one tensor to its writer; returns the whole there and nothing elsewhere.
at::Tensor bring(Group& group, const Tensor& t, const std::vector<Piece>& mine, int& tag) {
  at::Tensor whole;
  if (t.writer == group.rank()) whole = at::empty({t.numel}, at::TensorOptions(t.item.dtype));
  Works works;
  std::vector<at::Tensor> sent;  // alive until they have left
  for (const Part& part : t.parts) {
    if (part.n == 0) continue;
    const bool here = part.rank == group.rank();
    tag = (tag + 1) % kTags;
    if (whole.defined() && here)
      whole.narrow(0, part.begin, part.n).copy_(mine[part.piece].data);
    else if (whole.defined())
      works.push_back(group.recv(whole.narrow(0, part.begin, part.n), part.rank, tag));
    else if (here)
      works.push_back(group.send(sent.emplace_back(mine[part.piece].data.cpu()), t.writer, tag));
  }
  wait_all(works);
  return whole;
}

}  // namespace

std::vector<Piece> collect_whole(Group& group, const FormatTraits& traits, const std::vector<Piece>& mine) {
  auto tensors = all_tensors(group, mine);
  for (auto& [id, t] : tensors) check_whole(id, t);
  choose_writers(tensors, group.size(), traits.one_writer);
  std::vector<Piece> out;
  int tag = 0;
  for (auto& [id, t] : tensors)
    if (const auto whole = bring(group, t, mine, tag); whole.defined()) out.push_back({t.item, 0, whole});
  return out;
}

}  // namespace shale

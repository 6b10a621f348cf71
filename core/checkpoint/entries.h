// What this rank hands to a format: its pieces cut into boxes, sorted, in parts; and what goes beside the format.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/checkpoint/format.h"
#include "core/checkpoint/snapshot.h"

namespace shale {

// Points into the spec it was made from, which must outlive it.
class Entries {
 public:
  // `leader`: this rank also writes the spec's items. Error{checkpoint} naming the item that the format cannot hold.
  Entries(const SnapshotSpec&, CheckpointFormat&, bool leader);
  Entries(const Entries&) = delete;

  std::size_t parts() const { return parts_.size(); }
  std::span<const WriteEntry> part(std::size_t k) const { return parts_[k]; }
  const std::vector<Item>& beside() const { return beside_; }  // items for run.json
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }

 private:
  void add_piece(const Piece&);
  void add_whole(const Piece&);
  void check_held(const Item&) const;
  void add_item(const Item&);
  void cut_into_parts();

  const FormatTraits traits_;
  const std::string format_;
  std::deque<Box> boxes_;  // addresses are kept by entries
  std::deque<Item> items_;
  const std::shared_ptr<at::Tensor> staged_ = std::make_shared<at::Tensor>();  // the host copy handed out last
  std::vector<WriteEntry> entries_;
  std::vector<std::span<const WriteEntry>> parts_;
  std::vector<Item> beside_;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace shale

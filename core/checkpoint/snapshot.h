// Saving and loading the state of a run. A snapshot appears by one rename after every byte is on disk; nothing is ever
// written into a finished one. Layout and commit protocol: core/checkpoint/README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/base/log.h"
#include "core/checkpoint/format.h"
#include "core/checkpoint/item.h"
#include "core/comm/group.h"

namespace shale {

// A part of a tensor that this rank writes. Every element of a tensor is in exactly one piece of exactly one rank.
struct Piece {
  Item item;
  std::int64_t begin = 0;  // of the row-major order of the whole tensor
  at::Tensor data;         // 1-d, contiguous, item.dtype; borrowed until save returns
};

struct SnapshotSpec {
  std::string root;        // <run>/checkpoints
  std::uint64_t step = 0;
  std::vector<Piece> pieces;  // tensors of this rank
  std::vector<Item> items;    // values, byte strings (in Item::value as std::string) and aliases; the same on all ranks
  std::string model_json, config_text;
};

// Collective over all ranks. On return the snapshot step-%08d is complete and durable, or every rank gets the same
// Error{io} and nothing new is visible.
void save_snapshot(Group& everyone, CheckpointFormat&, const SnapshotSpec&);

// Deletes all but the newest `keep` complete snapshots, never `protect` and nothing that is not ours. Rank 0 only.
void retain(const std::string& root, int keep, const std::string& protect);

struct SnapshotName {
  std::uint64_t step = 0;
  std::string path;
};
// Complete snapshots by their manifests, ascending by step; half-written and foreign folders are not listed.
std::vector<SnapshotName> list_snapshots(const std::string& root);

class SnapshotReader {
 public:
  // Opens a folder and checks manifest, index, bounds, overlap and coverage: Error{checkpoint} naming file and item.
  static std::unique_ptr<SnapshotReader> open(const std::string& path, CheckpointFormat&);
  virtual ~SnapshotReader() = default;
  virtual const std::vector<Item>& items() const = 0;
  virtual const Item* find(ItemRole, const std::string& name, const std::string& key) const = 0;
  // Elements [begin, begin + into.numel()) of the row-major order into a contiguous CPU tensor of the item's dtype.
  virtual void read(const Item&, std::int64_t begin, const at::Tensor& into) = 0;
  virtual std::string read_bytes(const Item&) = 0;  // kind bytes
  virtual std::uint64_t bytes_read() const = 0;     // tensor bytes read from files so far
  virtual std::uint64_t step() const = 0;
};

// The id of the format a snapshot was written with, from its manifest, or "" for a folder that has none.
std::string format_of(const std::string& path);

}  // namespace shale

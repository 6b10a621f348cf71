// Saving and loading the state of a run. A snapshot appears by one rename after every byte is on disk; nothing is ever
// written into a finished one. Layout and commit protocol: core/checkpoint/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/checkpoint/format.h"
#include "core/checkpoint/item.h"
#include "core/comm/group.h"

namespace shale {

// A part of a tensor that this rank writes. Every element of a tensor is in exactly one piece of exactly one rank.
struct Piece {
  Item item;
  std::int64_t begin = 0;                 // of the row-major order of the whole tensor
  at::Tensor data;                        // 1-d, contiguous, item.dtype, on any device; borrowed until save returns
  std::function<at::Tensor()> load = {};  // instead of data, for a whole tensor: asked for it when it is written
};

struct SnapshotSpec {
  std::string root;  // <run>/checkpoints
  std::uint64_t step = 0;
  std::vector<Piece> pieces;  // tensors of this rank
  std::vector<Item> items;    // values, byte strings (in Item::value as std::string) and aliases; the same on all ranks
  std::string model_json, config_text;  // kept as model.json and config.toml
  std::vector<std::string> plugins;     // one line each, for inspect
  std::string assets;                   // a folder with tokenizer files and the like, for formats that carry them
};

// Collective over all ranks. On return the snapshot step-%08d is complete and durable, or every rank gets the same
// Error of the first rank that failed (io, or checkpoint for what the format cannot hold) and nothing new is visible.
// A complete snapshot of the same step is replaced in one exchange; anything else of that name is an error.
void save_snapshot(Group& everyone, CheckpointFormat&, const SnapshotSpec&);

// Deletes all but the newest `keep` complete snapshots, never `protect` and nothing that is not ours. Rank 0 only.
void retain(const std::string& root, int keep, const std::string& protect);

struct SnapshotName {
  std::uint64_t step = 0;
  std::string path;
};
// Complete snapshots by their manifests, ascending by step; half-written and foreign folders are not listed.
std::vector<SnapshotName> list_snapshots(const std::string& root);

// Used by one thread at a time; the format must outlive it. No rank needs another to read.
class SnapshotReader {
 public:
  // Opens a folder and checks manifest, index, bounds, overlap and coverage: Error{checkpoint} naming file and item.
  static std::unique_ptr<SnapshotReader> open(const std::string& path, CheckpointFormat&);
  // The same for a folder that some other program wrote: no manifest, step 0.
  static std::unique_ptr<SnapshotReader> open_foreign(const std::string& path, CheckpointFormat&);
  virtual ~SnapshotReader() = default;
  virtual const std::vector<Item>& items() const = 0;
  virtual const Item* find(ItemRole, const std::string& name, const std::string& key) const = 0;
  // Elements [begin, begin + into.numel()) of the row-major order into a contiguous CPU tensor of the item's dtype.
  virtual void read(const Item&, std::int64_t begin, const at::Tensor& into) = 0;
  virtual std::string read_bytes(const Item&) = 0;  // kind bytes
  virtual std::uint64_t bytes_read() const = 0;     // tensor bytes read from files so far
  virtual std::uint64_t step() const = 0;
  virtual std::string model_json() = 0;   // as saved; "" when there is none
  virtual std::string config_text() = 0;  // likewise
};

// The id of the format a snapshot was written with, from its manifest, or "" for a folder that has none.
std::string format_of(const std::string& path);

// Reads every file against the manifest: one line per file that is missing, shorter, longer or changed; none = intact.
// Error{checkpoint} when the manifest itself cannot be used.
std::vector<std::string> verify_snapshot(const std::string& path);

}  // namespace shale

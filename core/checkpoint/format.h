// The interface of checkpoint formats; loader/ implements it over the plugin ABI. A format turns items into files and
// files into an index of items; who writes what, checksums, fsync and the commit are the room's (snapshot.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/folder.h"
#include "core/checkpoint/item.h"

namespace shale {

struct FormatTraits {
  bool boxes = false, bytes = false, values = false, optimizer = false, aliases = false, one_writer = false;
  std::vector<at::ScalarType> dtypes;  // what it can hold
  std::uint64_t file_bytes = 0;        // most data one write call should get; 0 = any
};

// One box of a tensor, or one item that is not a tensor. An item of kind bytes has dtype byte and shape {length}, here
// and in an Index, where one box {0} + {length} says where it is.
struct WriteEntry {
  const Item* item = nullptr;
  const Box* box = nullptr;  // tensors only
  std::uint64_t bytes = 0;
  std::function<const void*()> data;  // host copy, valid until the next call of any entry's data
};

struct WriteCall {
  std::uint64_t step = 0;
  int writer = 0, n_writers = 1;  // position among the ranks that write
  int part = 0, n_parts = 1;      // of this writer
  int first_part = 0, all_parts = 1;
  Folder* folder = nullptr;             // open for writing
  std::span<const WriteEntry> entries;  // sorted by role, name, key, then box
  std::string* report = nullptr;        // appended to; handed to finish
};

struct FinishCall {
  std::uint64_t step = 0, total_bytes = 0;
  Folder* folder = nullptr;
  std::span<const std::string> reports;  // in the order of all_parts
  std::string model_json;                // config.json spelling
  Folder* assets = nullptr;              // tokenizer and the like, to copy from; nullptr = none
};

// Where a box of an item is: plain little-endian row-major bytes in a file, or behind a token the format decodes.
struct StoredBox {
  std::size_t item = 0;  // position in Index::items
  Box box;
  std::string file;
  std::uint64_t offset = 0;
  std::string token;        // not empty: coded
  std::uint64_t bytes = 0;  // decoded length
};

struct Index {
  std::vector<Item> items;
  std::vector<StoredBox> boxes;
};

class CheckpointFormat {
 public:
  virtual ~CheckpointFormat() = default;
  virtual const std::string& id() const = 0;
  virtual FormatTraits traits() = 0;
  virtual void write(const WriteCall&) = 0;    // io thread
  virtual void finish(const FinishCall&) = 0;  // rank 0, after all parts of all ranks
  virtual int probe(Folder&) = 0;              // 0 not mine, 1 could be, 2 surely
  virtual Index describe(Folder&) = 0;         // nothing in it is trusted: snapshot.h checks it
  virtual void read(Folder&, const std::string& token, std::span<std::byte> to) = 0;
};

}  // namespace shale

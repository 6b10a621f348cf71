// One reserved range of addresses from which big blocks are cut. Freed blocks are merged with their neighbours and
// stay in memory for reuse; memory that fragmentation leaves idle goes back to the system before the range grows.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace shale {

class BlockRange {
 public:
  // As much address space as the system grants, at most `bytes`; null when it grants nothing useful.
  static std::unique_ptr<BlockRange> reserve(std::size_t bytes = std::size_t{1} << 40);
  ~BlockRange();
  BlockRange(const BlockRange&) = delete;
  BlockRange& operator=(const BlockRange&) = delete;

  void* take(std::size_t bytes);     // aligned to 64 KiB; null when no hole is long enough
  std::size_t release(void* block);  // a block of take(); returns the bytes that were asked for
  bool owns(const void* p) const { return p >= base_ && p < base_ + length_; }
  std::size_t resident() const { return resident_chunks_ * kChunk; }  // bytes of the range touched and not given back
  std::size_t live() const { return live_; }                          // bytes of blocks taken, rounded up

 private:
  static constexpr std::size_t kGrain = std::size_t{1} << 16;
  static constexpr std::size_t kChunk = std::size_t{1} << 21;  // a huge page: the unit of being in memory
  static constexpr std::size_t kIdle = std::size_t{32} << 20;  // idle memory that is not worth giving back
  struct Block {
    std::size_t length, asked;
  };

  BlockRange(char* base, std::size_t length);
  void touch(std::size_t from, std::size_t length);
  void give_back_idle();
  void give_back(std::size_t from, std::size_t length, std::size_t allowed);

  char* base_;
  std::size_t length_;
  std::map<std::size_t, std::size_t> holes_;       // offset -> length; neighbours are always merged
  std::unordered_map<std::size_t, Block> blocks_;  // offset -> block
  std::vector<bool> in_memory_;                    // per chunk, grown as the range is used
  std::size_t resident_chunks_ = 0, live_ = 0;
};

}  // namespace shale

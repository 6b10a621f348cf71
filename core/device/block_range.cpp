#include "core/device/block_range.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/base/error.h"

namespace shale {
namespace {

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::unique_ptr<BlockRange> BlockRange::reserve(std::size_t bytes) {
  // Limits on address space (ulimit -v, strict overcommit) may forbid the whole; half of it may still do.
  for (; bytes >= 16 * kChunk; bytes /= 2) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) return std::unique_ptr<BlockRange>(new BlockRange(static_cast<char*>(at), bytes));
  }
  return nullptr;
}

BlockRange::BlockRange(char* base, std::size_t length) : base_(base), length_(length) {
  madvise(base_, length_, MADV_HUGEPAGE);  // a wish; without huge pages everything still works
  const auto first =
      round_up(reinterpret_cast<std::uintptr_t>(base_), kChunk) - reinterpret_cast<std::uintptr_t>(base_);
  holes_[first] = length_ / kGrain * kGrain - round_up(first, kGrain);
}

BlockRange::~BlockRange() { munmap(base_, length_); }

// Best fit, the lowest address among equals: small holes are used up first, and the untouched end of the range, one
// huge hole, last of all.
void* BlockRange::take(std::size_t bytes) {
  if (bytes > length_) return nullptr;
  const auto length = round_up(std::max<std::size_t>(bytes, 1), kGrain);
  auto best = holes_.end();
  for (auto it = holes_.begin(); it != holes_.end(); ++it)
    if (it->second >= length && (best == holes_.end() || it->second < best->second)) best = it;
  if (best == holes_.end()) return nullptr;
  const auto [offset, space] = *best;
  holes_.erase(best);
  if (space > length) holes_[offset + length] = space - length;
  blocks_[offset] = {length, bytes};
  live_ += length;
  touch(offset, length);
  return base_ + offset;
}

std::size_t BlockRange::release(void* block) {
  auto offset = static_cast<std::size_t>(static_cast<char*>(block) - base_);
  const auto it = blocks_.find(offset);
  check(it != blocks_.end(), "cpu pool: freed a block at offset ", offset, " that was never handed out");
  auto [length, asked] = it->second;
  blocks_.erase(it);
  live_ -= length;
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && next->first == offset + length) {
    length += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return asked;
    }
  }
  holes_.emplace_hint(next, offset, length);
  return asked;
}

void BlockRange::touch(std::size_t from, std::size_t length) {
  const auto first = from / kChunk, last = (from + length - 1) / kChunk;
  if (last >= in_memory_.size()) in_memory_.resize(last + 1, false);
  bool grows = false;
  for (auto chunk = first; chunk <= last; ++chunk) {
    if (in_memory_[chunk]) continue;
    in_memory_[chunk] = grows = true;
    ++resident_chunks_;
  }
  if (grows) give_back_idle();
}

// The range holds at most kIdle more than what is in use whenever it grows, so the memory of the process stays near
// the peak of its tensors. A steady state never grows, so it never pays for this.
void BlockRange::give_back_idle() {
  const auto allowed = live_ + kIdle;
  for (auto it = holes_.rbegin(); it != holes_.rend() && resident() > allowed; ++it)
    give_back(it->first, it->second, allowed);
}

void BlockRange::give_back(std::size_t from, std::size_t length, std::size_t allowed) {
  auto last = std::min((from + length) / kChunk, in_memory_.size());
  const auto first = round_up(from, kChunk) / kChunk;
  while (last > first && resident() > allowed) {
    --last;
    if (!in_memory_[last]) continue;
    madvise(base_ + last * kChunk, kChunk, MADV_DONTNEED);
    in_memory_[last] = false;
    --resident_chunks_;
  }
}

}  // namespace shale

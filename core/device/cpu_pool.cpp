#include "core/device/cpu_pool.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "core/base/error.h"
#include "core/device/block_range.h"

namespace shale {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 64;

// In front of every block of the system: its size, in a line of its own so that the data stay aligned.
struct alignas(kAlignment) Header {
  std::size_t bytes;
};

class CpuPool final : public c10::Allocator {
 public:
  CpuPool() {
    // A fixed threshold: glibc otherwise raises it with each big block freed and then keeps what libraries free.
    mallopt(M_MMAP_THRESHOLD, static_cast<int>(kLarge));
    // And it must not hand the end of its heap back and fault it in again within every step.
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    large_ = BlockRange::reserve();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &CpuPool::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CpuPool::release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

  PoolCounts counts() {
    const std::lock_guard lock(mutex_);
    return {allocated_.load(), peak_.load(), large_allocations_.load(),
            static_cast<std::int64_t>(large_ ? large_->resident() : 0)};
  }
  void reset_peak() { peak_.store(allocated_.load()); }

  // The one of this process: LibTorch keeps a bare pointer to it and frees tensors until the very end, so it is never
  // destroyed, and a deleter has no other way to find it.
  static CpuPool& of_process() {
    static auto* pool = new CpuPool;
    return *pool;
  }

 private:
  void* take(std::size_t bytes) {
    void* data = nullptr;
    if (bytes >= kLarge) {
      const std::lock_guard lock(mutex_);
      if (large_) data = large_->take(bytes);
    }
    if (!data) data = take_from_system(bytes);
    if (bytes >= kLarge) ++large_allocations_;
    const auto now = allocated_.fetch_add(static_cast<std::int64_t>(bytes)) + static_cast<std::int64_t>(bytes);
    auto peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    return data;
  }

  static void* take_from_system(std::size_t bytes) {
    void* block = nullptr;
    if (bytes > SIZE_MAX - sizeof(Header) || posix_memalign(&block, kAlignment, bytes + sizeof(Header)) != 0)
      fail(Code::io, "out of memory: a tensor of ", bytes, " bytes could not be allocated (",
           of_process().allocated_.load(), " in use); use a smaller batch, activation checkpointing or more ranks");
    new (block) Header{bytes};
    return static_cast<char*>(block) + sizeof(Header);
  }

  static void release(void* data) {
    if (!data) return;
    auto& pool = of_process();
    std::size_t bytes = 0;
    if (pool.large_ && pool.large_->owns(data)) {
      const std::lock_guard lock(pool.mutex_);
      bytes = pool.large_->release(data);
    } else {
      auto* block = static_cast<char*>(data) - sizeof(Header);
      bytes = reinterpret_cast<Header*>(block)->bytes;
      std::free(block);
    }
    pool.allocated_.fetch_sub(static_cast<std::int64_t>(bytes));
  }

  std::mutex mutex_;  // guards large_'s contents; the pointer itself never changes
  std::unique_ptr<BlockRange> large_;
  std::atomic<std::int64_t> allocated_{0}, peak_{0}, large_allocations_{0};
};

}  // namespace

void install_cpu_pool() { c10::SetCPUAllocator(&CpuPool::of_process(), 1); }
PoolCounts cpu_pool_counts() { return CpuPool::of_process().counts(); }
void reset_cpu_pool_peak() { CpuPool::of_process().reset_peak(); }

}  // namespace shale

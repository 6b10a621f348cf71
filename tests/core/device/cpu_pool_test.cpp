#include "core/device/cpu_pool.h"

#include <cstdint>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace shale {
namespace {

class cpu_pool : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_cpu_pool(); }
  static at::Tensor bytes(std::int64_t n) { return at::empty({n}, at::kByte); }
};

TEST_F(cpu_pool, counts_every_byte_and_the_peak) {
  const auto start = cpu_pool_counts().allocated;
  reset_cpu_pool_peak();
  {
    const auto a = bytes(1000), b = bytes(3 << 20);
    EXPECT_EQ(cpu_pool_counts().allocated - start, 1000 + (3 << 20));
  }
  EXPECT_EQ(cpu_pool_counts().allocated, start);
  EXPECT_EQ(cpu_pool_counts().peak - start, 1000 + (3 << 20));
  reset_cpu_pool_peak();
  EXPECT_EQ(cpu_pool_counts().peak, start);
}

TEST_F(cpu_pool, counts_large_blocks_only) {
  const auto before = cpu_pool_counts().large_allocations;
  const auto a = bytes((1 << 20) - 1);
  EXPECT_EQ(cpu_pool_counts().large_allocations, before);
  const auto b = bytes(1 << 20);
  EXPECT_EQ(cpu_pool_counts().large_allocations, before + 1);
}

TEST_F(cpu_pool, data_lies_on_64_bytes) {
  for (const std::int64_t n : {1, 63, 4097, (1 << 20) + 1, 5 << 20})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes(n).data_ptr()) % 64, 0u) << n;
}

TEST_F(cpu_pool, large_blocks_are_reused) {
  void* first = bytes(7 << 20).data_ptr();
  EXPECT_EQ(bytes(7 << 20).data_ptr(), first);
}

TEST_F(cpu_pool, empty_tensors_cost_nothing) {
  const auto before = cpu_pool_counts().allocated;
  const auto a = bytes(0);
  EXPECT_EQ(cpu_pool_counts().allocated, before);
}

TEST_F(cpu_pool, raw_allocations_are_counted_too) {
  const auto before = cpu_pool_counts().allocated;
  auto* allocator = c10::GetCPUAllocator();
  void* p = allocator->raw_allocate(2 << 20);
  EXPECT_EQ(cpu_pool_counts().allocated, before + (2 << 20));
  allocator->raw_deallocate(p);
  EXPECT_EQ(cpu_pool_counts().allocated, before);
}

TEST_F(cpu_pool, more_than_there_is_gives_an_error) {
  EXPECT_THROW(bytes(std::int64_t{1} << 60), std::exception);
  EXPECT_THROW(c10::GetCPUAllocator()->allocate(SIZE_MAX), std::exception);
}

TEST_F(cpu_pool, threads_share_it) {
  const auto before = cpu_pool_counts().allocated;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const auto a = at::ones({(t + 1) * 100000 + i * 1000});
        ASSERT_EQ(a.sum().item<float>(), static_cast<float>(a.numel()));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cpu_pool_counts().allocated, before);
}

}  // namespace
}  // namespace shale

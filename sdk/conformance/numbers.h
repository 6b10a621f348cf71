// Numbers in the formats tensors have, one at a time, and memory for them that notices writes beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "shale/plugin.h"

namespace shale::conform {

bool is_number(std::uint32_t dtype);  // one this kit computes with
bool is_float(std::uint32_t dtype);   // one the math service computes with
double load(std::uint32_t dtype, const void* data, std::uint64_t k);
// Rounds to the nearest; integers are cut off as casts do and kept in their range.
void store(std::uint32_t dtype, void* data, std::uint64_t k, double value);

std::uint64_t count(const shale_tensor&);  // elements
std::uint64_t bytes(const shale_tensor&);
bool contiguous(const shale_tensor&);
bool overlap(const shale_tensor&, const shale_tensor&);
// Why a service does not take a tensor, "" = it does.
std::string problem(const shale_tensor&, bool write);

// Memory between two strips of a known pattern, 256-byte aligned, filled with bytes that are NaN in every float format.
class Guarded {
 public:
  explicit Guarded(std::uint64_t size);
  void* data() const { return memory_.get() + kStrip; }
  bool intact() const;

 private:
  static constexpr std::uint64_t kStrip = 256;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::uint64_t size_, whole_;
  std::unique_ptr<std::byte[], Free> memory_;
};

// A vector of numbers in guarded memory.
class Buffer {
 public:
  Buffer(std::uint32_t dtype, std::uint64_t n);
  shale_tensor tensor(bool read_only = false) const;
  double get(std::uint64_t k) const { return load(dtype_, memory_.data(), k); }
  void set(std::uint64_t k, double value) { store(dtype_, memory_.data(), k, value); }
  bool intact() const { return memory_.intact(); }
  bool same_bits(const Buffer&) const;
  Buffer copy() const;
  std::uint64_t size() const { return n_; }
  std::uint32_t dtype() const { return dtype_; }
  std::uint64_t digest() const;  // equal bits, equal digests

 private:
  std::uint32_t dtype_;
  std::uint64_t n_;
  Guarded memory_;
};

}  // namespace shale::conform

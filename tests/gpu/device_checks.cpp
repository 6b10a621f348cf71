// The device itself and its counters.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "tests/gpu/check.h"

namespace shale {
namespace {

void opens(Bench& b) {
  expect(!b.device.name().empty(), "the device has no name");
  expect(b.device.bytes() > (std::uint64_t{1} << 28), "only ", b.device.bytes(), " bytes of memory");
  if (b.cuda != nullptr) expect(b.device.arch() >= 50, "architecture ", b.device.arch());
  b.device.synchronize();
  const auto x = at::ones({1000}, at::TensorOptions(at::kDouble).device(b.on()));
  expect(x.sum().item<double>() == 1000, "a sum of 1000 ones is ", x.sum().item<double>());
}

void counts_memory(Bench& b) {
  b.device.synchronize();
  const auto before = b.device.allocated();
  b.device.reset_peak();
  {
    const auto x = at::empty({std::int64_t{8} << 20}, at::TensorOptions(at::kByte).device(b.on()));
    expect(b.device.allocated() - before == std::int64_t{8} << 20, b.device.allocated() - before,
           " bytes counted for 8 MiB");
  }
  expect(b.device.allocated() == before, "memory is counted after it was freed");
  expect(b.device.peak_allocated() - before >= std::int64_t{8} << 20, "the peak misses 8 MiB");
  b.device.reset_peak();
  expect(b.device.peak_allocated() - before < std::int64_t{8} << 20, "the peak is not reset");
}

}  // namespace

void add_device_checks(Checks& checks) {
  checks.push_back({"device.opens", Needs::nothing, opens});
  checks.push_back({"device.counts_memory", Needs::nothing, counts_memory});
}

}  // namespace shale

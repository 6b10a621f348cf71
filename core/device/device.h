// The device a rank computes on. The CPU one is here; the CUDA one is a library of its own that loader/ opens only when
// a config asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "core/device/streams.h"

namespace shale {

class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;
  virtual at::Device torch() const = 0;
  virtual std::string name() const = 0;
  virtual std::uint64_t bytes() const = 0;          // memory of the device (CPU: of the machine or its cgroup)
  virtual std::uint32_t arch() const = 0;           // CUDA 10 x major + minor; CPU 0
  virtual void synchronize() = 0;                   // waits for all work of this process on it
  virtual std::int64_t allocated() const = 0;       // bytes of tensors alive now
  virtual std::int64_t peak_allocated() const = 0;  // highest since reset_peak
  virtual void reset_peak() = 0;
  virtual Streams* streams() { return nullptr; }  // owned by the device; null: work is done when a call returns
};

std::unique_ptr<ComputeDevice> cpu_device();

}  // namespace shale

// What shale-gpu-check consists of: named checks, each run in a process of its own.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/base/text.h"
#include "core/comm/world.h"
#include "core/device/device.h"
#include "core/loader/backend.h"

namespace shale {

struct Bench {
  ComputeDevice& device;
  const CudaLibrary* cuda = nullptr;  // null: the checks are tried on the CPU
  World* world = nullptr;             // of two ranks, for checks that need two GPUs
  std::string program;                // path of shale

  at::Device on() const { return device.torch(); }
};

enum class Needs { nothing, gpu, two_gpus };

struct Check {
  std::string name;
  Needs needs = Needs::nothing;  // nothing: the CPU will do, to try the check itself
  std::function<void(Bench&)> run;
};
using Checks = std::vector<Check>;

void add_device_checks(Checks&);
void add_ops_checks(Checks&);
void add_optim_checks(Checks&);
void add_stream_checks(Checks&);
void add_nccl_checks(Checks&);
void add_engine_checks(Checks&);
void add_program_checks(Checks&);

// Ends the check with what went wrong.
template <class... Parts>
void expect(bool good, const Parts&... parts) {
  if (!good) throw std::runtime_error(shale::str(parts...));
}

// Largest difference of two tensors of any device and float type, relative to the largest number of `wanted`.
double error_of(const at::Tensor& found, const at::Tensor& wanted);
// Numbers between -1 and 1 that look random and are the same everywhere: [shape] of dtype on the device.
at::Tensor numbers(at::IntArrayRef shape, int salt, const at::TensorOptions&);

// Work that keeps the current stream busy for some tens of milliseconds; nothing on the CPU.
class Busy {
 public:
  explicit Busy(at::Device);
  void work();

 private:
  at::Tensor a_, b_;  // undefined on the CPU
};

}  // namespace shale

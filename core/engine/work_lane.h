// The lanes that a strategy's hooks work on: one thread each on the CPU. On CUDA hooks enqueue from the stepping thread
// on its current stream, which is that of the lane when work is submitted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "core/comm/group.h"
#include "core/engine/states.h"
#include "core/sharding/exchange.h"

namespace shale {

struct LaneSpec {
  std::string name;  // for messages
  at::Device device = at::kCPU;
  void* stream = nullptr;    // cudaStream_t
  std::int64_t scratch = 0;  // bytes of the largest hook
  double limit = 100;        // seconds a hook may run
  StateStore* states = nullptr;
  std::vector<std::unique_ptr<Group>> groups;  // by partition of the plan; null = alone in it
};

class WorkLane {
 public:
  using Job = std::function<void(Lane&)>;

  explicit WorkLane(LaneSpec);
  ~WorkLane();  // waits for what was submitted; while an exception unwinds it closes the lane's groups instead
  WorkLane(const WorkLane&) = delete;
  WorkLane& operator=(const WorkLane&) = delete;

  // Runs after everything submitted before. What a job throws is thrown by the wait() of its work; later jobs do not
  // run then and their wait() throws a secondary error. scratch: bytes it may take.
  std::unique_ptr<Work> submit(Job, std::int64_t scratch);
  void wait_until_inputs_read();  // every job has ended or made its first collective call
  Traffic traffic() const;        // of its groups, as of the last job that ended

 private:
  class Queue;
  std::shared_ptr<Queue> queue_;  // shared with the thread, which is left behind when a hook never returns
  int born_;
};

}  // namespace shale

#include "tests/gpu/echo_group.h"

#include <functional>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/gpu/check.h"

namespace shale {
namespace {

c10::Stream current(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

class EchoWork final : public Work {
 public:
  EchoWork(at::Device device, std::optional<c10::Event> done) : device_(device), done_(std::move(done)) {}
  void wait() override {
    if (done_) done_->block(current(device_));
  }

 private:
  at::Device device_;
  std::optional<c10::Event> done_;
};

class EchoGroup final : public Group {
 public:
  EchoGroup(at::Device device, const std::string& name) : device_(device), name_(name), busy_(device) {
    if (device.is_cuda()) side_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const std::string& name() const override { return name_; }

  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    return start(Op::all_gather,
                 [full, n = full.numel() / 2] { full.narrow(0, n, n).copy_(full.narrow(0, 0, n)).mul_(0.875); });
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                       const at::Tensor& staging) override {
    return start(Op::reduce_scatter, [mine, full, staging, n = full.numel() / 2] {
      staging.copy_(full);
      mine.copy_(staging.narrow(0, 0, n)).add_(staging.narrow(0, n, n).to(mine.scalar_type()), 0.25);
    });
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction) override {
    return start(Op::all_reduce, [inout] { inout.mul_(1.5); });
  }
  std::unique_ptr<Work> broadcast(const at::Tensor&, int) override {
    return start(Op::broadcast, [] {});
  }
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return start(Op::all_to_all, [out, in] { out.copy_(in); });
  }
  std::unique_ptr<Work> send(const at::Tensor&, int, int) override {
    return start(Op::send, [] {});
  }
  std::unique_ptr<Work> recv(const at::Tensor&, int, int) override {
    return start(Op::recv, [] {});
  }
  void barrier() override {}

 private:
  std::unique_ptr<Work> start(Op op, const std::function<void()>& answer) {
    ++traffic_[op].calls;
    if (!side_) {
      answer();
      return std::make_unique<EchoWork>(device_, std::nullopt);
    }
    c10::Event asked(device_.type()), done(device_.type());
    asked.record(current(device_));
    const c10::StreamGuard guard(*side_);
    asked.block(*side_);
    busy_.work();
    answer();
    done.record(*side_);
    return std::make_unique<EchoWork>(device_, std::move(done));
  }

  at::Device device_;
  std::string name_;
  Busy busy_;
  std::optional<c10::Stream> side_;
};

}  // namespace

std::unique_ptr<Group> echo_group(at::Device device, const std::string& name) {
  return std::make_unique<EchoGroup>(device, name);
}

}  // namespace shale

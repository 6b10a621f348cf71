// Groups over c10d's NCCL. Operations start in the order of the current stream; wait() makes the current stream wait
// and does not block the host. A peer that is gone is noticed by c10d's watchdog, which ends the process after the time
// limit: a collective that already runs on the device cannot be left in any other way.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>

#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "core/base/error.h"
#include "core/comm/group.h"
#include "core/device/cuda_api.h"

namespace shale {
namespace {

using Pending = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

// The three calls that c10d renamed in 2.14.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
Pending gather_into(c10d::Backend& nccl, at::Tensor out, at::Tensor in) { return nccl.all_gather_single(out, in); }
Pending reduce_into(c10d::Backend& nccl, at::Tensor out, at::Tensor in) { return nccl.reduce_scatter_single(out, in); }
Pending exchange(c10d::Backend& nccl, at::Tensor out, at::Tensor in) {
  std::vector<std::int64_t> even;
  return nccl.all_to_all_single(out, in, even, even);
}
#else
Pending gather_into(c10d::Backend& nccl, at::Tensor out, at::Tensor in) { return nccl._allgather_base(out, in); }
Pending reduce_into(c10d::Backend& nccl, at::Tensor out, at::Tensor in) { return nccl._reduce_scatter_base(out, in); }
Pending exchange(c10d::Backend& nccl, at::Tensor out, at::Tensor in) {
  std::vector<std::int64_t> even;
  return nccl.alltoall_base(out, in, even, even);
}
#endif

// What a group and its works share; works may outlive the group.
struct Link {
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl;
  std::string name;
  int rank = 0, size = 1;
  Traffic* traffic = nullptr;  // null once the group is gone
  std::atomic<bool> aborted{false};
};

template <class Call>
auto guarded(const Link& link, Op op, const Call& call) {
  if (link.aborted)
    throw Error(Code::dist, str("rank ", link.rank, " of group \"", link.name, "\": ", op_name(op),
                                " after the group was ended by an earlier error"))
        .mark_secondary();
  try {
    return call();
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    throw Error(Code::dist, str("rank ", link.rank, " of group \"", link.name, "\": ", op_name(op),
                                " failed: ", reason.substr(0, reason.find('\n')), "; set NCCL_DEBUG=INFO to see more"));
  }
}

class NcclWork final : public Work {
 public:
  using After = std::function<void()>;  // runs once the current stream is ordered after the work
  NcclWork(std::shared_ptr<Link> link, Op op, Pending pending, After after)
      : link_(std::move(link)), op_(op), pending_(std::move(pending)), after_(std::move(after)) {}
  ~NcclWork() override {
    try {
      wait();
    } catch (const std::exception&) {
      return;  // the error was somebody's to see in wait()
    }
  }

  void wait() override {
    if (!pending_) return;
    const auto pending = std::move(pending_);
    pending_.reset();
    const auto start = Clock::now();
    guarded(*link_, op_, [&] { return pending->wait(); });
    if (after_) after_();
    if (link_->traffic) link_->traffic->waited += std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  std::shared_ptr<Link> link_;
  Op op_;
  Pending pending_;
  After after_;
};

// A tensor of the host, such as a number to agree on, takes part through a copy on the device.
struct OnDevice {
  explicit OnDevice(const at::Tensor& tensor)
      : given(tensor), tensor(given.is_cuda() ? given : given.to(at::Device(at::kCUDA, c10::cuda::current_device()))) {}
  NcclWork::After copy_back() const {
    if (given.is_cuda()) return {};
    return [*this] { given.copy_(tensor); };
  }
  at::Tensor given, tensor;
};

class NcclGroup final : public Group {
 public:
  explicit NcclGroup(const CudaGroup& spec) : link_(std::make_shared<Link>()) {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(spec.timeout * 1e3));
    link_->name = spec.name, link_->rank = spec.rank, link_->size = spec.size, link_->traffic = &traffic_;
    const auto store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(spec.store);
    link_->nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, spec.rank, spec.size, options);
  }
  ~NcclGroup() override {
    link_->traffic = nullptr;
    try {
      if (std::uncaught_exceptions() > born_)
        abort();  // nobody will finish what is under way
      else
        link_->nccl->shutdown();
    } catch (const std::exception&) {
      return;  // the communicator is broken already, and its error was reported where it happened
    }
  }

  int rank() const override { return link_->rank; }
  int size() const override { return link_->size; }
  const std::string& name() const override { return link_->name; }

  void abort() noexcept override {
    if (link_->aborted.exchange(true)) return;
    try {
      link_->nccl->abort();
    } catch (const std::exception&) {
      return;  // it is broken either way
    }
  }

  std::unique_ptr<shale::Work> all_gather(const at::Tensor& full) override {
    const OnDevice all(full);
    const auto flat = all.tensor.view(-1);
    return start(
        Op::all_gather, outside(flat), [&] { return gather_into(nccl(), flat, piece(flat, rank())); }, all.copy_back());
  }

  // Of one type: NCCL adds while it sends. Of two: the pieces travel as they are and are added wide in rank order.
  std::unique_ptr<shale::Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                              const at::Tensor& staging) override {
    const auto flat = full.view(-1);
    if (mine.scalar_type() == full.scalar_type())
      return start(Op::reduce_scatter, outside(flat), [&] { return reduce_into(nccl(), mine.view(-1), flat); }, {});
    const auto pieces = staging.view({size(), -1});
    return start(
        Op::reduce_scatter, outside(flat), [&] { return exchange(nccl(), staging.view(-1), flat); },
        [pieces, out = mine.view(-1)]() mutable {
          at::sum_out(out, pieces, at::IntArrayRef{0}, false, out.scalar_type());
        });
  }

  std::unique_ptr<shale::Work> all_reduce(const at::Tensor& inout, Reduction reduction) override {
    const OnDevice all(inout);
    c10d::AllreduceOptions options;
    options.reduceOp = reduction == Reduction::sum   ? c10d::ReduceOp::SUM
                       : reduction == Reduction::max ? c10d::ReduceOp::MAX
                                                     : c10d::ReduceOp::MIN;
    return start(
        Op::all_reduce, 2 * outside(inout), [&] { return nccl().allreduce(list(all), options); }, all.copy_back());
  }

  std::unique_ptr<shale::Work> broadcast(const at::Tensor& inout, int root) override {
    const OnDevice all(inout);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return start(
        Op::broadcast, rank() == root && size() > 1 ? bytes(inout) : 0,
        [&] { return nccl().broadcast(list(all), options); }, all.copy_back());
  }

  std::unique_ptr<shale::Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    const OnDevice to(out), from(in);
    const auto target = to.tensor.view(-1), source = from.tensor.view(-1);
    return start(
        Op::all_to_all, outside(in), [&] { return exchange(nccl(), target, source); }, to.copy_back());
  }

  // NCCL knows no tags: the messages of a pair must be received in the order they are sent in.
  std::unique_ptr<shale::Work> send(const at::Tensor& tensor, int to, int tag) override {
    const OnDevice one(tensor);
    return start(
        Op::send, bytes(tensor), [&] { return nccl().send(list(one), to, tag); }, [one] {});
  }

  std::unique_ptr<shale::Work> recv(const at::Tensor& tensor, int from, int tag) override {
    const OnDevice one(tensor);
    return start(
        Op::recv, 0, [&] { return nccl().recv(list(one), from, tag); }, one.copy_back());
  }

  void barrier() override {
    c10d::BarrierOptions options;
    options.device_ids = {c10::cuda::current_device()};
    start(Op::barrier, 0, [&] { return nccl().barrier(options); }, {})->wait();
  }

 private:
  c10d::Backend& nccl() { return *link_->nccl; }
  std::vector<at::Tensor>& list(const OnDevice& one) {
    arguments_ = {one.tensor};  // c10d takes its lists by reference and keeps the tensors, not the list
    return arguments_;
  }
  at::Tensor piece(const at::Tensor& flat, int of) const {
    const auto length = flat.numel() / size();
    return flat.narrow(0, of * length, length);
  }
  static std::int64_t bytes(const at::Tensor& t) { return static_cast<std::int64_t>(t.nbytes()); }
  std::int64_t outside(const at::Tensor& full) const { return bytes(full) * (size() - 1) / size(); }

  template <class Call>
  std::unique_ptr<shale::Work> start(Op op, std::int64_t sent, const Call& call, NcclWork::After after) {
    auto pending = guarded(*link_, op, call);
    ++traffic_[op].calls;
    traffic_[op].bytes += sent;
    return std::make_unique<NcclWork>(link_, op, std::move(pending), std::move(after));
  }

  std::shared_ptr<Link> link_;
  std::vector<at::Tensor> arguments_;
  int born_ = std::uncaught_exceptions();
};

}  // namespace
}  // namespace shale

shale::Group* shale_cuda_group(const shale::CudaGroup& group) {
  shale::check(group.store != nullptr && group.rank >= 0 && group.rank < group.size, "a group of ", group.size,
               " ranks cannot have rank ", group.rank);
  return new shale::NcclGroup(group);
}

#include "core/comm/c10d_group.h"

#include <csignal>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/comm/rank_order_sum.h"

namespace shale {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Pending = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Tags of send() and recv() are the caller's, below this; those of our own transfers count up from it.
constexpr int kFirstOwnTag = 1 << 30;
constexpr int kAbortTag = kFirstOwnTag - 1;

Milliseconds milliseconds(double seconds) {
  return Milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e3)));
}

// What a group and its works share; works may outlive the group.
struct Link {
  GroupSpec spec;
  int me = 0;  // position in spec.ranks
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  Traffic* traffic = nullptr;  // null once the group is gone
  std::uint32_t transfers = 0;
  std::atomic<bool> broken{false};

  int ways() const { return static_cast<int>(spec.ranks.size()); }
  int own_tag() { return kFirstOwnTag + static_cast<int>(transfers++ & (kFirstOwnTag - 1)); }
  void abort() noexcept;
  [[noreturn]] void lost(Op op, int peer, const std::string& reason);
};

// Gloo closes all connections of a group when one wait times out: what is under way here and at the peers then ends at
// once with an error instead of after the full limit.
void Link::abort() noexcept {
  if (broken.exchange(true)) return;
  try {
    Tensors byte{at::empty({1}, at::kByte)};
    gloo->recv(byte, me == 0 ? 1 : 0, kAbortTag)->wait(Milliseconds(1));
  } catch (const std::exception&) {
    return;
  }
}

void Link::lost(Op op, int peer, const std::string& reason) {
  abort();
  const std::string what = str("rank ", spec.rank, ": ", op_name(op), " in group \"", spec.name, "\" ");
  const std::string whom = peer < 0 ? "" : str("rank ", spec.ranks[static_cast<std::size_t>(peer)]);
  if (is_timeout(reason)) {
    const std::string where = whom.empty() ? "" : str(", waiting for ", whom);
    fail(Code::dist, what, "did not finish in ", spec.timeout, " s", where,
         "; a rank is stuck or slower than [comm] train_timeout_seconds allows");
  }
  const std::string from = whom.empty() ? "a peer" : whom;
  throw Error(Code::dist, str(what, "lost its connection to ", from, " (", reason, ")")).mark_secondary();
}

// Runs a call of c10d; its exceptions become ours.
template <class Call>
auto guarded(Link& link, Op op, int peer, Call&& call) {
  if (link.broken) {
    const std::string text = str("rank ", link.spec.rank, ": ", op_name(op), " in group \"", link.spec.name,
                                 "\" after an earlier failure closed the group");
    throw Error(Code::dist, text).mark_secondary();
  }
  try {
    return call();
  } catch (const std::exception& error) {
    link.lost(op, peer, plain_reason(error));
  }
}

class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<Link> link, Op op) : link_(std::move(link)), op_(op) {}
  ~GlooWork() override {
    if (std::uncaught_exceptions() > born_) link_->abort();
    try {
      wait();
    } catch (const std::exception&) {
      return;
    }
  }

  void wait() override {
    if (std::exchange(done_, true)) return;
    const double begin = now(), end = begin + link_->spec.timeout;
    for (Part& part : parts_) {
      guarded(*link_, op_, part.peer, [&] { return part.work->wait(milliseconds(end - now())); });
    }
    if (finish_) finish_();
    parts_.clear();
    kept_.clear();
    if (link_->traffic) link_->traffic->waited += now() - begin;
  }

  void add(Pending work, int peer = -1) { parts_.push_back({std::move(work), peer}); }
  void keep(const at::Tensor& tensor) { kept_.push_back(tensor); }
  void then(std::function<void()> finish) { finish_ = std::move(finish); }

  // bytes of the tensor's memory from `offset`, to or from the peer at position `peer`; nothing for none.
  void send(const at::Tensor& t, std::int64_t offset, std::int64_t bytes, int peer, int tag) {
    if (bytes == 0) return;
    Tensors piece{view(t, offset, bytes)};
    add(guarded(*link_, op_, peer, [&] { return link_->gloo->send(piece, peer, tag); }), peer);
  }
  void recv(const at::Tensor& t, std::int64_t offset, std::int64_t bytes, int peer, int tag) {
    if (bytes == 0) return;
    Tensors piece{view(t, offset, bytes)};
    add(guarded(*link_, op_, peer, [&] { return link_->gloo->recv(piece, peer, tag); }), peer);
  }

 private:
  struct Part {
    Pending work;
    int peer;
  };
  static at::Tensor view(const at::Tensor& t, std::int64_t offset, std::int64_t bytes) {
    return at::from_blob(static_cast<char*>(t.data_ptr()) + offset, {bytes}, at::TensorOptions(at::kByte));
  }

  std::shared_ptr<Link> link_;
  Op op_;
  int born_ = std::uncaught_exceptions();
  bool done_ = false;
  std::vector<Part> parts_;
  Tensors kept_;
  std::function<void()> finish_;
};

std::int64_t bytes_of(const at::Tensor& t) { return static_cast<std::int64_t>(t.nbytes()); }

bool gloo_reduces(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf || type == at::kLong ||
         type == at::kInt || type == at::kByte || type == at::kChar;
}

class GlooGroup final : public Group {
 public:
  explicit GlooGroup(std::shared_ptr<Link> link) : link_(std::move(link)) { link_->traffic = &traffic_; }
  ~GlooGroup() override {
    link_->traffic = nullptr;
    if (std::uncaught_exceptions() > born_) link_->abort();
  }

  int rank() const override { return link_->me; }
  int size() const override { return link_->ways(); }
  const std::string& name() const override { return link_->spec.name; }

  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    const std::int64_t piece = piece_bytes(Op::all_gather, full);
    auto work = start(Op::all_gather, bytes_of(full) - piece, {full});
    for_each_peer([&](int to, int from, int tag) {
      work->recv(full, piece * from, piece, from, tag);
      work->send(full, piece * rank(), piece, to, tag);
    });
    return work;
  }

  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                       const at::Tensor& staging) override {
    const std::int64_t piece = piece_bytes(Op::reduce_scatter, full);
    check(staging.nbytes() >= full.nbytes() && staging.is_contiguous(), "reduce_scatter: staging of ", staging.nbytes(),
          " bytes for ", full.nbytes());
    check(mine.numel() * size() == full.numel(), "reduce_scatter: ", mine.numel(), " elements for a piece of ",
          full.numel(), " over ", size(), " ranks");
    auto work = start(Op::reduce_scatter, bytes_of(full) - piece, {mine, full, staging});
    for_each_peer([&](int to, int from, int tag) {
      work->recv(staging, piece * from, piece, from, tag);
      work->send(full, piece * to, piece, to, tag);
    });
    work->then([mine, full, staging, piece, me = rank(), ways = size()] {
      std::vector<const void*> pieces;
      for (int r = 0; r < ways; ++r) {  // mine never travelled
        pieces.push_back(static_cast<const char*>((r == me ? full : staging).const_data_ptr()) + piece * r);
      }
      rank_order_sum(mine, pieces, full.scalar_type());
    });
    return work;
  }

  std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction reduction) override {
    check(inout.is_contiguous() && gloo_reduces(inout.scalar_type()), "all_reduce: a tensor of ",
          c10::toString(inout.scalar_type()), " that is not contiguous or not supported");
    auto work = start(Op::all_reduce, 2 * bytes_of(inout) * (size() - 1) / size(), {inout});
    if (inout.numel() == 0) return work;
    c10d::AllreduceOptions options;
    if (reduction == Reduction::max) options.reduceOp = c10d::ReduceOp::MAX;
    if (reduction == Reduction::min) options.reduceOp = c10d::ReduceOp::MIN;
    Tensors list{inout};
    work->add(guarded(*link_, Op::all_reduce, -1, [&] { return link_->gloo->allreduce(list, options); }));
    return work;
  }

  std::unique_ptr<Work> broadcast(const at::Tensor& inout, int root) override {
    check(inout.is_contiguous() && root >= 0 && root < size(), "broadcast: from position ", root, " of ", size());
    auto work = start(Op::broadcast, root == rank() ? bytes_of(inout) : 0, {inout});
    if (inout.numel() == 0) return work;
    c10d::BroadcastOptions options;
    options.rootRank = root;
    Tensors list{at::from_blob(inout.data_ptr(), {bytes_of(inout)}, at::TensorOptions(at::kByte))};
    work->add(guarded(*link_, Op::broadcast, -1, [&] { return link_->gloo->broadcast(list, options); }));
    return work;
  }

  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    const std::int64_t piece = piece_bytes(Op::all_to_all, in);
    check(out.nbytes() == in.nbytes() && out.is_contiguous(), "all_to_all: ", in.nbytes(), " bytes into ",
          out.nbytes());
    auto work = start(Op::all_to_all, bytes_of(in) - piece, {out, in});
    for_each_peer([&](int to, int from, int tag) {
      work->recv(out, piece * from, piece, from, tag);
      work->send(in, piece * to, piece, to, tag);
    });
    const std::int64_t own = piece * rank();
    if (piece > 0) {
      std::memcpy(static_cast<char*>(out.data_ptr()) + own, static_cast<const char*>(in.const_data_ptr()) + own,
                  static_cast<std::size_t>(piece));
    }
    return work;
  }

  std::unique_ptr<Work> send(const at::Tensor& t, int to, int tag) override {
    check_peer(Op::send, t, to, tag);
    auto work = start(Op::send, bytes_of(t), {t});
    work->send(t, 0, bytes_of(t), to, tag);
    return work;
  }

  std::unique_ptr<Work> recv(const at::Tensor& t, int from, int tag) override {
    check_peer(Op::recv, t, from, tag);
    auto work = start(Op::recv, 0, {t});
    work->recv(t, 0, bytes_of(t), from, tag);
    return work;
  }

  void barrier() override {
    auto work = start(Op::barrier, 0, {});
    work->add(guarded(*link_, Op::barrier, -1, [&] { return link_->gloo->barrier(); }));
    work->wait();
  }

  void abort() noexcept override { link_->abort(); }

 private:
  std::unique_ptr<GlooWork> start(Op op, std::int64_t sent, std::initializer_list<at::Tensor> tensors) {
    ++traffic_[op].calls;
    traffic_[op].bytes += sent;
    auto work = std::make_unique<GlooWork>(link_, op);
    for (const at::Tensor& t : tensors) work->keep(t);
    return work;
  }

  // Every ordered pair of members once, and at any moment everybody sends to somebody else.
  template <class Exchange>
  void for_each_peer(Exchange&& exchange) {
    const int tag = link_->own_tag();
    for (int d = 1; d < size(); ++d) exchange((rank() + d) % size(), (rank() + size() - d) % size(), tag);
  }

  std::int64_t piece_bytes(Op op, const at::Tensor& full) const {
    check(full.is_contiguous() && full.numel() % size() == 0, op_name(op), ": ", full.numel(),
          " elements are not contiguous or not equal pieces for ", size(), " ranks");
    return bytes_of(full) / size();
  }

  void check_peer(Op op, const at::Tensor& t, int peer, int tag) const {
    check(t.is_contiguous() && peer >= 0 && peer < size() && peer != rank() && tag >= 0 && tag < kAbortTag, op_name(op),
          ": position ", peer, " of ", size(), ", tag ", tag);
  }

  std::shared_ptr<Link> link_;
  int born_ = std::uncaught_exceptions();
};

}  // namespace

struct QuietThreads::Mask {
  sigset_t signals;
};

QuietThreads::QuietThreads() : old_(std::make_unique<Mask>()) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old_->signals);
}

QuietThreads::~QuietThreads() { pthread_sigmask(SIG_SETMASK, &old_->signals, nullptr); }

std::string plain_reason(const std::exception& error) {
  const auto* from_c10 = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_c10 ? from_c10->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  text = text.substr(0, text.find(". This is typically caused"));
  while (true) {  // "[.../pair.cc:534] Connection closed"
    const std::size_t mark = text.find(".cc:"), begin = text.rfind('[', mark), end = text.find("] ", mark);
    if (mark == std::string::npos || begin == std::string::npos || end == std::string::npos) return text;
    text.erase(begin, end + 2 - begin);
  }
}

bool is_silence(const std::string& reason) { return reason.find("Socket Timeout") != std::string::npos; }

bool is_timeout(const std::string& reason) {
  return reason.find("imed out") != std::string::npos || is_silence(reason);
}

GlooDevice open_device(const std::string& interface_name, const std::string& address) {
  const QuietThreads quiet;
  try {
    return interface_name.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(address)
                                  : c10d::ProcessGroupGloo::createDeviceForInterface(interface_name);
  } catch (const std::exception& error) {
    fail(Code::dist, "start-up: cannot listen on ", interface_name.empty() ? address : interface_name, ": ",
         plain_reason(error));
  }
}

std::unique_ptr<Group> connect_group(const GroupSpec& spec, const GlooDevice& device,
                                     const c10::intrusive_ptr<c10d::Store>& store) {
  auto link = std::make_shared<Link>();
  link->spec = spec;
  const auto me = std::find(spec.ranks.begin(), spec.ranks.end(), spec.rank);
  check(spec.ranks.size() > 1 && me != spec.ranks.end(), "group \"", spec.name, "\" without rank ", spec.rank);
  link->me = static_cast<int>(me - spec.ranks.begin());
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(spec.init_timeout));
  options->devices = {device};
  options->threads = spec.threads;
  const QuietThreads quiet;
  try {
    link->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, link->me, link->ways(), options);
    link->gloo->barrier()->wait(milliseconds(spec.init_timeout));  // all connected: from now on any member may leave
    link->gloo->setTimeout(milliseconds(spec.timeout));
  } catch (const std::exception& error) {
    const std::string reason = plain_reason(error);
    Error wrapped(Code::dist, str("rank ", spec.rank, ": group \"", spec.name, "\" of ", spec.ranks.size(),
                                  " ranks did not connect within ", spec.init_timeout, " s (", reason, ")"));
    if (!is_timeout(reason)) wrapped.mark_secondary();
    throw wrapped;
  }
  return std::make_unique<GlooGroup>(std::move(link));
}

}  // namespace shale

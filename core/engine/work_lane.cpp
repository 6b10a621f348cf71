#include "core/engine/work_lane.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr std::int64_t kScratchAlign = 256, kScratchSlack = 16 << 10;  // slack: for aligning many small pieces
constexpr auto kGrace = std::chrono::seconds(5);  // a peer's limit inside a hook should speak before the lane's own

}  // namespace

// All that thread and owner share. It is the Lane that hooks see.
class WorkLane::Queue : public Lane, public std::enable_shared_from_this<Queue> {
 public:
  struct Entry {
    Job job;
    std::int64_t scratch = 0;
    bool done = false, inputs_read = false;
    std::chrono::steady_clock::time_point began;
    bool running = false;
    std::exception_ptr error;
  };
  using Ticket = std::shared_ptr<Entry>;

  explicit Queue(LaneSpec spec) : spec_(std::move(spec)) {
    const auto bytes = spec_.scratch > 0 ? spec_.scratch + kScratchSlack : 0;
    buffer_ = at::empty({bytes}, at::TensorOptions(at::kByte).device(spec_.device));
  }

  void start() {
    if (!spec_.device.is_cpu()) return;
    sigset_t all, old;  // signals belong to the stepping thread
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    thread_ = std::thread([self = std::static_pointer_cast<Queue>(shared_from_this())] { self->work(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }

  Ticket submit(Job job, std::int64_t scratch) {
    auto ticket = std::make_shared<Entry>();
    ticket->job = std::move(job), ticket->scratch = scratch;
    if (!spec_.device.is_cpu()) {
      run(*ticket);
      return ticket;
    }
    const std::lock_guard lock(mutex_);
    waiting_.push_back(ticket);
    changed_.notify_all();
    return ticket;
  }

  // True when it holds; false when a running hook passed its limit first.
  template <class Holds>
  bool wait(const Holds& holds) {
    std::unique_lock lock(mutex_);
    while (!holds()) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      if (!holds() && current_ && std::chrono::steady_clock::now() - current_->began > limit()) return false;
    }
    return true;
  }
  bool wait_for(const Ticket& t) {
    return wait([&] { return t->done; });
  }
  bool inputs_read() const { return waiting_.empty() && (!current_ || current_->inputs_read); }

  [[noreturn]] void too_slow() const {
    fail(Code::dist, "a hook of the sharding plugin did not return from the ", spec_.name, " lane within ", spec_.limit,
         " s; the plugin hangs, or [comm] train_timeout_seconds is too short for it");
  }

  void close() {
    const std::lock_guard lock(mutex_);
    dead_ = true;
    for (auto& g : spec_.groups)
      if (g) g->abort();
    changed_.notify_all();
  }

  // Ends the thread after what is queued. One that hangs in a hook is left behind: the process is about to end.
  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    std::unique_lock lock(mutex_);
    const bool ended = changed_.wait_for(lock, dead_ ? kGrace : limit(), [&] { return ended_; });
    lock.unlock();
    ended ? thread_.join() : thread_.detach();
  }

  Traffic traffic() const {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }

  void* stream() override { return spec_.stream; }
  Group* group(int partition) override {
    check(partition >= 0 && partition < static_cast<int>(spec_.groups.size()), "lane: no partition ", partition);
    {
      const std::lock_guard lock(mutex_);
      if (current_) current_->inputs_read = true;
      changed_.notify_all();
    }
    return spec_.groups[static_cast<std::size_t>(partition)].get();
  }

  void* scratch(std::int64_t bytes) override {
    taken_ += bytes;
    if (bytes < 0 || taken_ > allowed_)
      fail(Code::config, "the hook takes ", taken_, " bytes of scratch, its plan says ", allowed_,
           " (scratch_bytes): a bug of the plugin");
    const auto n = (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
    if (used_ + n <= buffer_.numel()) {
      auto* at = static_cast<char*>(buffer_.data_ptr()) + used_;
      const auto off = reinterpret_cast<std::uintptr_t>(at) % kScratchAlign;
      if (off == 0) {
        used_ += n;
        return at;
      }
    }
    extra_.push_back(at::empty({n + kScratchAlign}, buffer_.options()));
    const auto at = reinterpret_cast<std::uintptr_t>(extra_.back().data_ptr());
    return reinterpret_cast<void*>((at + kScratchAlign - 1) / kScratchAlign * kScratchAlign);
  }

  at::Tensor state(int index, const FlatLayout* flat) override { return spec_.states->find(index, flat); }
  void reset_state(int index, const FlatLayout* flat) override { spec_.states->reset(index, flat); }

 private:
  std::chrono::nanoseconds limit() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(spec_.limit * 1e9)) + kGrace;
  }

  void work() {
    const at::NoGradGuard off;
    while (true) {
      Ticket next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !waiting_.empty() || ending_; });
        if (waiting_.empty()) {
          ended_ = true;
          changed_.notify_all();
          return;
        }
        next = waiting_.front();
        waiting_.pop_front();
        next->began = std::chrono::steady_clock::now();
        current_ = next;
      }
      run(*next);
      next.reset();
    }
  }

  void run(Entry& entry) {
    taken_ = used_ = 0, allowed_ = entry.scratch;
    extra_.clear();
    try {
      if (dead())
        throw Error(Code::dist, str("the ", spec_.name, " lane was closed by an earlier failure")).mark_secondary();
      entry.job(*this);
    } catch (...) {
      entry.error = std::current_exception();
    }
    entry.job = nullptr;
    const std::lock_guard lock(mutex_);
    if (entry.error) dead_ = true;
    traffic_ = {};
    for (auto& g : spec_.groups)
      if (g) traffic_ += g->traffic();
    entry.done = true;
    current_ = nullptr;
    changed_.notify_all();
  }

  bool dead() const {
    const std::lock_guard lock(mutex_);
    return dead_;
  }

  LaneSpec spec_;
  at::Tensor buffer_;
  std::vector<at::Tensor> extra_;
  std::int64_t taken_ = 0, used_ = 0, allowed_ = 0;  // of the hook that runs
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ticket> waiting_;
  Ticket current_;
  Traffic traffic_;
  bool dead_ = false, ending_ = false, ended_ = false;
  std::thread thread_;
};

namespace {

class LaneWork final : public Work {
 public:
  using Wait = std::function<void()>;
  LaneWork(Wait wait, Wait abort) : wait_(std::move(wait)), abort_(std::move(abort)) {}
  ~LaneWork() override {
    if (!wait_) return;
    if (std::uncaught_exceptions() > born_) abort_();
    try {
      wait();
    } catch (const std::exception&) {
      return;
    }
  }
  void wait() override {
    if (auto once = std::exchange(wait_, nullptr)) once();
  }

 private:
  Wait wait_, abort_;
  int born_ = std::uncaught_exceptions();
};

}  // namespace

WorkLane::WorkLane(LaneSpec spec)
    : queue_(std::make_shared<Queue>(std::move(spec))), born_(std::uncaught_exceptions()) {
  queue_->start();
}

WorkLane::~WorkLane() {
  if (std::uncaught_exceptions() > born_) queue_->close();
  queue_->stop();
}

std::unique_ptr<Work> WorkLane::submit(Job job, std::int64_t scratch) {
  const auto ticket = queue_->submit(std::move(job), scratch);
  const auto wait = [queue = queue_, ticket] {
    if (!queue->wait_for(ticket)) queue->too_slow();
    if (ticket->error) std::rethrow_exception(ticket->error);
  };
  return std::make_unique<LaneWork>(wait, [queue = queue_] { queue->close(); });
}

void WorkLane::wait_until_inputs_read() {
  if (!queue_->wait([&] { return queue_->inputs_read(); })) queue_->too_slow();
}

Traffic WorkLane::traffic() const { return queue_->traffic(); }

}  // namespace shale

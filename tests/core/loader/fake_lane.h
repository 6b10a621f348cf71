// Lanes and groups of ranks that are threads of the test.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "core/base/error.h"
#include "core/comm/group.h"
#include "core/sharding/exchange.h"

namespace shale::test {

// Where the members of one group meet: each shows its tensor, all look, all go on.
class Meeting {
 public:
  explicit Meeting(int size) : shown_(static_cast<std::size_t>(size)) {}
  const std::vector<at::Tensor>& show(int rank, const at::Tensor& t) {
    shown_[static_cast<std::size_t>(rank)] = t;
    wait();
    return shown_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++here_ == shown_.size()) {
      here_ = 0, ++round_;
      all_.notify_all();
    } else if (!all_.wait_for(lock, std::chrono::seconds(30), [&] { return round_ != round; })) {
      fail(Code::internal, "a rank of the test did not come");
    }
  }
  std::size_t size() const { return shown_.size(); }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<at::Tensor> shown_;
  std::size_t here_ = 0, round_ = 0;
};

class MemoryGroup : public Group {
 public:
  MemoryGroup(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_.size()); }
  const std::string& name() const override { return name_; }

  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    return exchange(full, [&](const auto& all) {
      for (int r = 0; r < size(); ++r) piece(full, r).copy_(piece(all[static_cast<std::size_t>(r)], r));
    });
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full, const at::Tensor&) override {
    return exchange(full, [&](const auto& all) {
      mine.zero_();
      for (const at::Tensor& t : all) mine.add_(piece(t, rank_));
    });
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction reduction) override {
    at::Tensor sum;
    auto done = exchange(inout, [&](const auto& all) {
      sum = all[0].clone();
      for (std::size_t r = 1; r < all.size(); ++r) {
        if (reduction == Reduction::sum) sum.add_(all[r]);
        if (reduction == Reduction::max) sum = at::maximum(sum, all[r]);
        if (reduction == Reduction::min) sum = at::minimum(sum, all[r]);
      }
    });
    inout.copy_(sum);
    return done;
  }
  std::unique_ptr<Work> broadcast(const at::Tensor& inout, int root) override {
    return exchange(inout, [&](const auto& all) {
      if (rank_ != root) inout.copy_(all[static_cast<std::size_t>(root)]);
    });
  }
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return exchange(in, [&](const auto& all) {
      for (int r = 0; r < size(); ++r) piece(out, r).copy_(piece(all[static_cast<std::size_t>(r)], rank_));
    });
  }
  std::unique_ptr<Work> send(const at::Tensor&, int, int) override { fail(Code::internal, "no send here"); }
  std::unique_ptr<Work> recv(const at::Tensor&, int, int) override { fail(Code::internal, "no recv here"); }
  void barrier() override { meeting_.wait(); }

 private:
  class Done : public Work {
   public:
    void wait() override {}
  };
  at::Tensor piece(const at::Tensor& t, int r) const {
    return t.narrow(0, r * (t.numel() / size()), t.numel() / size());
  }
  template <class F>
  std::unique_ptr<Work> exchange(const at::Tensor& mine, F&& read) {
    read(meeting_.show(rank_, mine));
    meeting_.wait();
    return std::make_unique<Done>();
  }

  Meeting& meeting_;
  int rank_;
  std::string name_ = "threads";
};

// A group whose peer is gone.
class LostGroup : public MemoryGroup {
 public:
  using MemoryGroup::MemoryGroup;
  std::unique_ptr<Work> all_gather(const at::Tensor&) override { lost(); }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor&, const at::Tensor&, const at::Tensor&) override { lost(); }
  std::unique_ptr<Work> all_reduce(const at::Tensor&, Reduction) override { lost(); }
  std::unique_ptr<Work> all_to_all(const at::Tensor&, const at::Tensor&) override { lost(); }

 private:
  [[noreturn]] static void lost() { throw Error(Code::dist, "lost its connection to rank 1").mark_secondary(); }
};

class FakeLane : public Lane {
 public:
  void* stream() override { return nullptr; }
  Group* group(int partition) override { return groups.contains(partition) ? groups[partition] : nullptr; }
  void* scratch(std::int64_t bytes) override {
    taken += bytes;
    if (taken > planned)
      fail(Code::config, "the hook takes ", taken, " bytes of scratch, its plan says scratch_bytes = ", planned);
    memory.push_back(at::full({bytes + 1}, 0xa5, at::kByte));  // never null, never clear
    return memory.back().data_ptr();
  }
  at::Tensor state(int index, const FlatLayout* layout) override { return states.at({index, layout}); }
  void reset_state(int index, const FlatLayout* layout) override { states.at({index, layout}).zero_(); }

  std::map<int, Group*> groups;
  std::map<std::pair<int, const FlatLayout*>, at::Tensor> states;
  std::int64_t planned = 1 << 20, taken = 0;
  std::deque<at::Tensor> memory;
};

// body(rank, group) on a thread per rank; what one throws is thrown here.
inline void on_threads(int ranks, const std::function<void(int, MemoryGroup&)>& body) {
  Meeting meeting(ranks);
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        MemoryGroup group(meeting, r);
        body(r, group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  threads.clear();
  if (first) std::rethrow_exception(first);
}

}  // namespace shale::test

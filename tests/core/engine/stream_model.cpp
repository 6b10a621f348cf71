#include "tests/core/engine/stream_model.h"

#include <algorithm>
#include <functional>

#include "core/base/text.h"

namespace shale {

void join(Clock& mine, const Clock& other) {
  for (auto& [stream, at] : other) mine[stream] = std::max(mine[stream], at);
}

struct StreamModel::Event final : StreamEvent {
  explicit Event(StreamModel& m) : model(m) {}
  void record() override { at = model.clock(model.now()); }
  void wait() override {
    if (model.omit_ != Omit::event) join(model.clock(model.now()), at);
  }
  StreamModel& model;
  Clock at;
};

EventPtr StreamModel::event() { return std::make_unique<Event>(*this); }

void StreamModel::order(Stream early, Stream late) {
  const auto is = [&](Omit omit, Stream a, Stream b) { return omit_ == omit && early == a && late == b; };
  if (is(Omit::gather_to_compute, Stream::gather, Stream::compute)) return;
  if (is(Omit::compute_to_gather, Stream::compute, Stream::gather)) return;
  if (is(Omit::compute_to_reduce, Stream::compute, Stream::reduce)) return;
  if (is(Omit::reduce_to_compute, Stream::reduce, Stream::compute)) return;
  join(clock(static_cast<int>(late)), clock(static_cast<int>(early)));
}

void StreamModel::use(int stream, const at::Tensor& t, bool writes, const std::string& what) {
  const auto* begin = static_cast<const char*>(t.const_data_ptr());
  Use mine{begin, begin + t.nbytes(), stream, ++clock(stream)[stream], writes, what};
  for (auto& u : history_) {
    const bool apart = u.end <= mine.begin || mine.end <= u.begin, harmless = !u.writes && !writes;
    if (apart || harmless || clock(stream)[u.stream] >= u.at) continue;
    races_.push_back(str(what, " on stream ", stream, " races with ", u.what, " on stream ", u.stream));
  }
  std::erase_if(history_, [&](const Use& u) {  // a later use of the same bytes on the same stream stands for it
    return u.stream == stream && u.begin == mine.begin && u.end == mine.end && (writes || !u.writes);
  });
  history_.push_back(std::move(mine));
  ++uses_;
}

namespace {

class ModelledWork final : public Work {
 public:
  ModelledWork(StreamModel& m, Clock done) : model_(m), done_(std::move(done)) {}
  void wait() override { join(model_.clock(model_.now()), done_); }

 private:
  StreamModel& model_;
  Clock done_;
};

class ModelledGroup final : public Group {
 public:
  ModelledGroup(StreamModel& m, int size, const std::vector<at::Tensor>* masters, const std::string& name)
      : model_(m), size_(size), masters_(masters), name_(name), stream_(m.new_stream()) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  // The caller has just put its piece in its place, on the current stream.
  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    const auto n = full.numel() / size_;
    const auto mine = full.narrow(0, 0, n), theirs = full.narrow(0, n, full.numel() - n);
    for (auto& m : *masters_) model_.reads(m, "cast of a master");
    model_.writes(mine, "cast into a slot");
    theirs.view({size_ - 1, n}).copy_(mine).mul_(0.875);
    return transfer({{mine, false, "all_gather"}, {theirs, true, "all_gather"}});
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                       const at::Tensor& staging) override {
    const auto n = full.numel() / size_;
    staging.copy_(full);
    mine.copy_(staging.narrow(0, 0, n)).add_(staging.narrow(0, n, n).to(mine.scalar_type()), 0.25);
    return transfer(
        {{full, false, "reduce_scatter"}, {staging, true, "reduce_scatter"}, {mine, true, "reduce_scatter"}});
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction) override {
    inout.mul_(1.5);
    return transfer({{inout, true, "all_reduce"}});
  }
  std::unique_ptr<Work> broadcast(const at::Tensor&, int) override { return transfer({}); }
  std::unique_ptr<Work> all_to_all(const at::Tensor&, const at::Tensor&) override { return transfer({}); }
  std::unique_ptr<Work> send(const at::Tensor&, int, int) override { return transfer({}); }
  std::unique_ptr<Work> recv(const at::Tensor&, int, int) override { return transfer({}); }
  void barrier() override {}

 private:
  struct Access {
    at::Tensor tensor;
    bool writes;
    std::string what;
  };
  std::unique_ptr<Work> transfer(const std::vector<Access>& accesses) {
    const auto home = name_.find("gather") != std::string::npos ? Stream::gather : Stream::reduce;
    if (model_.current() != home) model_.found(name_ + " is not started from its stream, so it holds up another");
    join(model_.clock(stream_), model_.clock(model_.now()));
    for (auto& a : accesses) model_.use(stream_, a.tensor, a.writes, a.what + " of " + name_);
    return std::make_unique<ModelledWork>(model_, model_.clock(stream_));
  }

  StreamModel& model_;
  int size_;
  const std::vector<at::Tensor>* masters_;
  std::string name_;
  int stream_;
};

}  // namespace

std::unique_ptr<Group> modelled_group(StreamModel& m, int size, const std::vector<at::Tensor>* masters,
                                      const std::string& name) {
  return std::make_unique<ModelledGroup>(m, size, masters, name);
}

}  // namespace shale

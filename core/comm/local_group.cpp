#include "core/comm/local_group.h"

#include "core/base/error.h"
#include "core/comm/rank_order_sum.h"

namespace shale {
namespace {

class Done final : public Work {
 public:
  void wait() override {}
};

class LocalGroup final : public Group {
 public:
  explicit LocalGroup(const std::string& name) : name_(name) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  std::unique_ptr<Work> all_gather(const at::Tensor&) override { return done(Op::all_gather); }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full, const at::Tensor&) override {
    check(mine.numel() == full.numel() && full.is_contiguous(), "reduce_scatter in a group of one: ", mine.numel(),
          " elements of ", full.numel());
    const void* piece = full.const_data_ptr();
    if (piece != mine.const_data_ptr()) rank_order_sum(mine, {&piece, 1}, full.scalar_type());
    return done(Op::reduce_scatter);
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor&, Reduction) override { return done(Op::all_reduce); }
  std::unique_ptr<Work> broadcast(const at::Tensor&, int) override { return done(Op::broadcast); }
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    out.copy_(in);
    return done(Op::all_to_all);
  }
  std::unique_ptr<Work> send(const at::Tensor&, int to, int) override {
    fail(Code::internal, "send to rank ", to, " of group \"", name_, "\", which has one member");
  }
  std::unique_ptr<Work> recv(const at::Tensor&, int from, int) override {
    fail(Code::internal, "recv from rank ", from, " of group \"", name_, "\", which has one member");
  }
  void barrier() override { ++traffic_[Op::barrier].calls; }

 private:
  std::unique_ptr<Work> done(Op op) {
    ++traffic_[op].calls;
    return std::make_unique<Done>();
  }

  std::string name_;
};

}  // namespace

std::unique_ptr<Group> make_local_group(const std::string& name) { return std::make_unique<LocalGroup>(name); }

}  // namespace shale

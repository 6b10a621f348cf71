// The order of collectives, as the groups see it: the plan's, and the same on every rank.
#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "core/base/text.h"
#include "tests/core/comm/ranks.h"
#include "tests/core/engine/trainer.h"

namespace shale {
namespace {

struct Call {
  Op op;
  const void* memory;  // of the sum
  double first;        // of what this rank gives to a gather
};

// Passes every call on and writes it down.
class RecordingGroup final : public Group {
 public:
  RecordingGroup(std::unique_ptr<Group> inner, std::vector<Call>& calls) : inner_(std::move(inner)), calls_(calls) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    calls_.push_back({Op::all_gather, nullptr, full[full.numel() / size() * rank()].item<double>()});
    return inner_->all_gather(full);
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                       const at::Tensor& staging) override {
    calls_.push_back({Op::reduce_scatter, mine.data_ptr(), 0});
    return inner_->reduce_scatter(mine, full, staging);
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction r) override {
    calls_.push_back({Op::all_reduce, inout.data_ptr(), 0});
    return inner_->all_reduce(inout, r);
  }
  std::unique_ptr<Work> broadcast(const at::Tensor& t, int root) override { return inner_->broadcast(t, root); }
  std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return inner_->all_to_all(out, in);
  }
  std::unique_ptr<Work> send(const at::Tensor& t, int to, int tag) override { return inner_->send(t, to, tag); }
  std::unique_ptr<Work> recv(const at::Tensor& t, int from, int tag) override { return inner_->recv(t, from, tag); }
  void barrier() override { inner_->barrier(); }

 private:
  std::unique_ptr<Group> inner_;
  std::vector<Call>& calls_;
};

// "G0" gathers unit 0, "R0" sums its gradient into the shards, "S0" sums shards over replicas.
std::string told(Engine& engine, const Call& call) {
  int unit = 0;
  for (auto& shard : engine.shards()) {
    const bool gives = shard.master.numel() > 0 && shard.master[0].item<double>() == call.first;
    if (call.op == Op::all_gather ? gives : shard.grad.data_ptr() == call.memory)
      return str(call.op == Op::all_gather ? "G" : call.op == Op::reduce_scatter ? "R" : "S", unit);
    ++unit;
  }
  return str(op_name(call.op), " of no unit");
}

// What the second step does, from its first gather to those that follow the update.
std::string order_of_a_step(World& world, const Case& c) {
  std::vector<Call> calls;
  Trainer trainer(world, c, table_of(mini_model(c.model).info, all(at::kDouble)),
                  [&](const Partition& p, const std::string& name) -> std::unique_ptr<Group> {
                    return std::make_unique<RecordingGroup>(world.group(p, name), calls);
                  });
  trainer.step(0);
  const auto first = calls.size();
  std::vector<std::string> out;
  trainer.step(1, [&] {  // gathers send the masters of their time: named before the update changes them
    for (auto i = first; i < calls.size(); ++i) out.push_back(told(*trainer.engine, calls[i]));
    calls.clear();
  });
  if (!calls.empty()) out.push_back("update");
  for (auto& call : calls) out.push_back(told(*trainer.engine, call));
  return join(out, " ");
}

void expect_order(int ranks, const Case& c, const std::string& expected) {
  SCOPED_TRACE(str(c.strategy, " on ", ranks, " ranks"));
  on_ranks(ranks, [&](World& world) {
    for (auto& order : all_gather_text(world.everyone(), order_of_a_step(world, c))) EXPECT_EQ(order, expected);
  });
}

// Unit 0 is the embedding, 5 the head, 1 to 4 are layers. A unit's gather sets out before the unit in front of it
// computes, so gathers run ahead of reductions where both are due.
TEST(EngineOrder, GathersAndReductionsFollowThePlan) {
  const MiniOptions four{.layers = 4};
  for (int ranks : {2, 3}) {
    // Two slots: backward finds layers 3 and 4 in place; layer 2 sets out as layer 3 begins, once 4 has left its slot.
    expect_order(ranks, {.world = ranks, .strategy = "full_shard", .model = four},
                 "G0 G1 G2 G3 G4 G5 R5 R4 G2 R3 G1 R2 R1 R0");
    expect_order(ranks, {.world = ranks, .strategy = "keep", .model = four}, "G0 G1 G2 G3 G4 G5 R5 R4 R3 R2 R1 R0");
    expect_order(ranks, {.world = ranks, .strategy = "after_update", .model = four},
                 "R5 R4 R3 R2 R1 R0 update G0 G1 G2 G3 G4 G5");
    expect_order(ranks, {.world = ranks, .strategy = "no_shard", .model = four}, "S5 S4 S3 S2 S1 S0");
  }
}

// Replicas are summed once a unit, at any time after its reduction, which keeps the order that it has without them.
TEST(EngineOrder, ReplicasAreSummedAfterTheReductionOfTheirUnit) {
  on_ranks(4, [](World& world) {
    const Case c{.world = 4, .strategy = "hybrid", .model = {.layers = 4}};
    std::string sums, rest, seen;
    const auto orders = all_gather_text(world.everyone(), order_of_a_step(world, c));
    for (auto& order : orders) EXPECT_EQ(order, orders[0]);
    std::istringstream calls(orders[0]);
    for (std::string call; calls >> call; seen += call) {
      if (call[0] == 'S') {
        EXPECT_NE(seen.find("R" + call.substr(1)), std::string::npos) << call << " in " << orders[0];
      }
      (call[0] == 'S' ? sums : rest) += (call[0] == 'S' ? call.substr(1) : call + " ");
    }
    EXPECT_EQ(rest, "G0 G1 G2 G3 G4 G5 R5 R4 G2 R3 G1 R2 R1 R0 ");
    std::ranges::sort(sums);
    EXPECT_EQ(sums, "012345");
  });
}

}  // namespace
}  // namespace shale

// The tensors that a strategy's hooks keep from step to step.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "core/sharding/plan.h"
#include "core/sharding/shard.h"

namespace shale {

// One of them. shard is null in the scopes global and rank.
struct State {
  const StateSpec* spec = nullptr;
  int index = 0;  // position of the spec in the plan
  const Shard* shard = nullptr;
  at::Tensor value;  // [numel], or [shard->range.length]
};

class StateStore {
 public:
  // Plan and shards outlive it. owner: the plugin's id; seed: the run's; both choose random first values.
  StateStore(const ShardPlan&, const std::deque<Shard>&, at::Device, std::string owner, std::uint64_t seed);

  void fill();  // every state its first value; masters must be there
  // Error{internal} for one there is not. Different states may be used on different threads.
  at::Tensor find(int index, const FlatLayout*) const;
  void reset(int index, const FlatLayout*) const;
  std::vector<State>& all() { return states_; }

 private:
  const State& at(int index, const FlatLayout*) const;
  void first_value(const State&) const;

  std::string owner_;
  std::uint64_t seed_;
  std::vector<State> states_;
};

}  // namespace shale

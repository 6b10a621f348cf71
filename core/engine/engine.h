// Runs a model forward and backward over sharded weights. Weights are gathered into static slots, each unit is computed
// and differentiated by itself, its gradients are reduced into the shard while the one before computes. One thread; all
// ranks make the same calls in the same order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "core/comm/group.h"
#include "core/data/batch.h"
#include "core/engine/gradients.h"
#include "core/engine/hooks.h"
#include "core/engine/memory.h"
#include "core/engine/state.h"
#include "core/engine/weights.h"
#include "core/model/model.h"
#include "core/precision/policy.h"
#include "core/sharding/plan.h"
#include "core/sharding/shard.h"

namespace shale {

struct EngineOptions {
  int rank = 0, micro_steps = 1;
  bool checkpoint_layers = false;  // layers keep their input only and are run again in backward
  at::Device device = at::kCPU;
  HookOptions hooks = {};
  Streams* streams = nullptr;  // of the device; null: work is done when a call returns
};

class Engine {
 public:
  // The model, plans and what makes groups must outlive the engine; all ranks make it together. Allocates everything
  // the steps need; weights are undefined until initialise().
  Engine(const Model&, const PrecisionTable&, const ShardPlan&, const GroupMaker&, const EngineOptions&);
  ~Engine();
  Engine(const Engine&) = delete;

  // Fills the masters: values(parameter, begin, end) gives elements of the row-major order, any float dtype.
  using Values = std::function<at::Tensor(const ParameterInfo&, std::int64_t begin, std::int64_t end)>;
  void initialise(const Values&);

  // step from 1; grad_scale: what seeds are scaled by; after_skip: the step before did not change the weights.
  void begin_step(std::int64_t step = 1, double grad_scale = 1, bool after_skip = false);
  // One micro-step: adds the gradient of seed * (sum of the batch's losses) to the shards. Returns that sum, of this
  // rank's batch. last: the step's last micro-step.
  double forward_backward(const Batch&, double seed, bool last);
  void end_step();              // all gradients are in the shards, summed over all ranks
  void conclude(bool skipped);  // before the optimizer writes, or does not: hooks are told and leave the masters alone
  bool outer_step();            // after the optimizer: the strategy's work of every some steps; true = masters changed
  void weights_changed();       // masters were written; starts the gathers that follow an update
  void drain();                 // nothing reads or writes states and masters until the next call

  double evaluate(const Batch&);                // sum of the losses of this rank's batch; gradients untouched
  at::Tensor logits(const at::Tensor& tokens);  // [B, T] -> [B, T, vocabulary]

  // Calls visit with each parameter's full value in compute dtype, in run order, valid during the call; all ranks take
  // part. A unit that runs twice is visited twice.
  void each_parameter(const std::function<void(const ParameterInfo&, const at::Tensor&)>& visit);

  std::deque<Shard>& shards() { return shards_; }
  StateStore& states() { return hooks_.states(); }
  void states_loaded() { hooks_.states_loaded(); }  // initialise() gave them first values, a snapshot better ones
  const MemoryPlan& memory() const { return memory_; }
  struct Counts {
    std::int64_t gathers = 0, reductions = 0;
  };  // of units
  Counts counts() const { return {weights_.gathers(), gradients_.reductions()}; }
  // Of this engine's groups by what they are for: "gather", "reduce", "replicas", "outer".
  std::map<std::string, Traffic> traffic_by_purpose() const;
  Traffic traffic() const;  // added up

 private:
  struct Segment {  // what backward needs of a position
    std::size_t position;
    at::Tensor in, out;
  };

  std::deque<Shard> make_shards() const;
  void make_slots();
  void make_units(const GroupMaker&);
  void make_positions();
  void bind_flat(FlatState&, UnitState&, const FlatMemory&);
  void bind_groups(FlatState&, const UnitPlan&, const GroupMaker&);
  Group* group(int partition, const std::string& purpose, const GroupMaker&);
  Weight leaf(UnitState&, std::size_t parameter);

  at::Tensor forward(const ModelInput&, std::vector<Segment>* tape);
  at::Tensor run(std::size_t position, const ModelInput&, const at::Tensor& x);
  void backward(std::vector<Segment>& tape, const ModelInput&, const at::Tensor& seed);
  void before(std::size_t position, int direction);
  void after(std::size_t position);
  void close(int unit);

  const Model& model_;
  const ShardPlan& plan_;
  EngineOptions options_;
  MemoryPlan memory_;
  std::vector<std::pair<std::string, std::unique_ptr<Group>>> groups_;
  std::deque<Shard> shards_;
  std::deque<WeightSlot> weight_slots_;
  std::deque<GradSlot> grad_slots_;
  std::deque<UnitState> units_;
  std::vector<Position> positions_;
  std::size_t first_trained_ = 0;  // first position with a gradient
  bool last_micro_step_ = true;
  Hooks hooks_;  // destroyed before the memory that hooks work on
  WeightGatherer weights_;
  GradientReducer gradients_;
};

}  // namespace shale

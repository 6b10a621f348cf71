// The builder a sharding plugin answers plan() through, and the ShardPlan it ends in.
#pragma once

#include <string>
#include <vector>

#include "core/loader/plan_builder.h"
#include "core/sharding/plan.h"

namespace shale {

class ShardingBuilder : public PlanBuilder {
 public:
  // has_outer: the plugin brings shale.sharding.outer/1.
  ShardingBuilder(std::size_t units, int world, bool has_outer);
  ShardingBuilder(const ShardingBuilder&) = delete;
  ShardingBuilder& operator=(const ShardingBuilder&) = delete;
  const shale_sharding_builder* c() const { return &c_; }

  // Error{config} when a unit has no numbers. Once, after the plugin's plan returned.
  ShardPlan take_plan(const PluginInstance&, const ModelInfo&);

 private:
  struct Calls;  // the functions of the table
  shale_status* add(const Partition& colors, std::uint32_t* group);
  shale_status* set(std::uint32_t unit, const shale_unit_plan*);
  shale_status* check_groups(const shale_unit_plan&) const;
  shale_status* check_numbers(const shale_unit_plan&) const;
  shale_status* check_outer(const shale_unit_plan&) const;
  shale_status* add_state(const shale_state*, std::uint32_t* state);
  shale_status* check_state(const shale_state&) const;
  shale_status* check_first(const shale_state&) const;

  const std::uint32_t world_;
  const bool has_outer_;
  std::vector<Partition> groups_;
  std::vector<UnitPlan> units_;
  std::vector<bool> set_;
  std::vector<StateSpec> states_;
  int weights_ = 0, gradients_ = 0;
  shale_sharding_builder c_;
};

}  // namespace shale

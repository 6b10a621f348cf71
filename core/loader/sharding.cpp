#include <algorithm>
#include <map>

#include "core/loader/adapters.h"
#include "core/loader/plan_builder.h"

namespace shale {
namespace {

constexpr std::uint32_t kMostGroups = 1024, kMostAhead = 65536;

// Colors renamed in order of first appearance: equal partitions become equal values.
Partition normal(const Partition& colors) {
  std::map<std::uint32_t, std::uint32_t> names;
  Partition out;
  for (const std::uint32_t c : colors)
    out.push_back(names.emplace(c, static_cast<std::uint32_t>(names.size())).first->second);
  return out;
}

class Builder : public PlanBuilder {
 public:
  Builder(std::size_t units, int world) : world_(static_cast<std::uint32_t>(world)), units_(units), set_(units, false) {
    groups_ = {self_partition(world), world_partition(world)};
    c_ = {sizeof c_, 0, this, add_blocks, add_strides, add_colors, set_unit, set_slots, add_state};
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  const shale_sharding_builder* c() const { return &c_; }

  ShardPlan take_plan(const PluginInstance& plugin, const ModelInfo& model) {
    finish(plugin, "plan");
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (!set_[u])
        plugin.refuse(Code::config, str("plan: no numbers were given for unit ", u, " (", model.units[u].name,
                                        "); every unit needs set_unit: a bug of the plugin"));
    ShardPlan plan;
    plan.groups = std::move(groups_), plan.units = std::move(units_);
    plan.weight_slots = weights_, plan.grad_slots = gradients_;
    return plan;
  }

 private:
  static Builder& me(void* ctx) { return *static_cast<Builder*>(ctx); }

  static shale_status* add_blocks(void* ctx, std::uint32_t block, std::uint32_t* group) {
    return me(ctx).add_even("block", block, group, [&](std::uint32_t r) { return r / block; });
  }
  static shale_status* add_strides(void* ctx, std::uint32_t stride, std::uint32_t* group) {
    return me(ctx).add_even("stride", stride, group, [&](std::uint32_t r) { return r % stride; });
  }
  static shale_status* add_colors(void* ctx, const std::uint32_t* color, std::uint32_t n, std::uint32_t* group) {
    Builder& b = me(ctx);
    return b.answer([&]() -> shale_status* {
      if (color == nullptr) return bad_argument("color", "is NULL");
      if (n != b.world_) return bad_argument("n", str("must be the world, ", b.world_, " (got ", n, ")"));
      return b.add(Partition(color, color + n), group);
    });
  }
  static shale_status* set_unit(void* ctx, std::uint32_t unit, const shale_unit_plan* plan) {
    Builder& b = me(ctx);
    return b.answer([&] { return b.set(unit, plan); });
  }
  static shale_status* set_slots(void* ctx, std::uint32_t weights, std::uint32_t gradients) {
    Builder& b = me(ctx);
    return b.answer([&]() -> shale_status* {
      if (weights > kMostAhead)
        return bad_argument("weights", str("must be at most ", kMostAhead, " (got ", weights, ")"));
      if (gradients > kMostAhead)
        return bad_argument("gradients", str("must be at most ", kMostAhead, " (got ", gradients, ")"));
      b.weights_ = static_cast<int>(weights), b.gradients_ = static_cast<int>(gradients);
      return nullptr;
    });
  }
  static shale_status* add_state(void* ctx, const shale_state*, std::uint32_t*) {
    return me(ctx).answer([] { return unsupported("state", "this shale calls no hooks that could use state"); });
  }

  template <class F>
  shale_status* add_even(const char* argument, std::uint32_t size, std::uint32_t* group, F&& color_of) {
    return answer([&]() -> shale_status* {
      if (size == 0 || world_ % size != 0)
        return bad_argument(argument, str("must divide the world, ", world_, " (got ", size, ")"));
      Partition colors;
      for (std::uint32_t r = 0; r < world_; ++r) colors.push_back(color_of(r));
      return add(colors, group);
    });
  }

  shale_status* add(const Partition& colors, std::uint32_t* group) {
    if (group == nullptr) return bad_argument("group", "is NULL");
    const Partition wanted = normal(colors);
    const auto known = std::find(groups_.begin(), groups_.end(), wanted);
    *group = static_cast<std::uint32_t>(known - groups_.begin());
    if (known != groups_.end()) return nullptr;
    if (groups_.size() == kMostGroups) return unsupported("group", str("more than ", kMostGroups, " groups"));
    groups_.push_back(wanted);
    return nullptr;
  }

  shale_status* check_numbers(const shale_unit_plan& p) const {
    for (const auto& [name, group] : {std::pair{"shard_group", p.shard_group},
                                      {"replica_group", p.replica_group},
                                      {"reshard_group", p.reshard_group}})
      if (group >= groups_.size())
        return bad_argument(name, str("is ", group, ", an id that no add_... gave (there are ", groups_.size(), ")"));
    if (p.gather_at > SHALE_GATHER_AFTER_UPDATE) return bad_argument("gather_at", str("is ", p.gather_at));
    if (p.reduce_at > SHALE_AT_BOUNDARY) return bad_argument("reduce_at", str("is ", p.reduce_at));
    if (p.replica_at > SHALE_NEVER) return bad_argument("replica_at", str("is ", p.replica_at));
    if (p.prefetch > kMostAhead) return bad_argument("prefetch", str("is ", p.prefetch));
    if (p.align > (1u << 30)) return bad_argument("align", str("is ", p.align));
    if (p.replica_at == SHALE_NEVER)
      return unsupported("replica_at", "NEVER needs shale.sharding.outer/1, which this shale does not call");
    if (p.outer_every != 0)
      return unsupported("outer_every", "needs shale.sharding.outer/1, which this shale does not call");
    return nullptr;
  }

  shale_status* set(std::uint32_t unit, const shale_unit_plan* theirs) {
    if (unit != SHALE_ALL_UNITS && unit >= units_.size())
      return bad_argument("unit", str("is ", unit, ", the model has ", units_.size(), " units"));
    shale_unit_plan p;
    if (!take(theirs, p))
      return bad_argument(
          "plan", str("has ", theirs ? size_of(theirs) : 0, " bytes, ABI 0.1 has ", kBaseline<shale_unit_plan>));
    if (auto* problem = check_numbers(p)) return problem;
    const UnitPlan plan{static_cast<int>(p.shard_group),   static_cast<int>(p.replica_group),
                        static_cast<int>(p.reshard_group), static_cast<GatherAt>(p.gather_at),
                        static_cast<SyncAt>(p.reduce_at),  static_cast<SyncAt>(p.replica_at),
                        static_cast<int>(p.prefetch),      std::max<std::int64_t>(p.align, 1)};
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (unit == SHALE_ALL_UNITS || unit == u) units_[u] = plan, set_[u] = true;
    return nullptr;
  }

  const std::uint32_t world_;
  std::vector<Partition> groups_;
  std::vector<UnitPlan> units_;
  std::vector<bool> set_;
  int weights_ = 0, gradients_ = 0;
  shale_sharding_builder c_;
};

class Sharding : public ShardingStrategy {
 public:
  Sharding(OwnedInstance plugin, SharedDtypes dtypes)
      : plugin_(std::move(plugin)), dtypes_(std::move(dtypes)), table_(plugin_->table<shale_sharding>(SHALE_SHARDING)) {
    if (table_.plan == nullptr) plugin_->refuse(Code::config, "its table of shale.sharding/1 has no plan: a bug of it");
  }

  ShardPlan plan(const ModelInfo& model, const Topology& topology) override {
    // What the last call was given is kept until now.
    model_ = std::make_unique<ModelView>(model, dtypes_->of(model));
    topology_ = std::make_unique<TopologyView>(topology);
    if ((plugin_->descriptor().caps & SHALE_CAP_NEEDS_EVEN_NODES) && topology_->c()->node_size == 0)
      plugin_->refuse(Code::config, str("needs nodes with equal numbers of ranks, but the ", topology.world,
                                        " ranks lie unevenly on ", topology_->c()->n_nodes, " nodes"));
    Builder builder(model.units.size(), topology.world);
    plugin_->call("plan", Code::config,
                  [&] { return table_.plan(plugin_->self(), model_->c(), topology_->c(), builder.c()); });
    ShardPlan plan = builder.take_plan(*plugin_, model);
    check_plan(*plugin_, [&] { validate(plan, model, topology); });
    return plan;
  }

 private:
  OwnedInstance plugin_;
  SharedDtypes dtypes_;
  shale_sharding table_;
  std::unique_ptr<ModelView> model_;
  std::unique_ptr<TopologyView> topology_;
};

}  // namespace

const PrecisionTable* LatestDtypes::of(const ModelInfo& model) const {
  if (!table || table->units.size() != model.units.size()) return nullptr;
  for (std::size_t u = 0; u < model.units.size(); ++u)
    if (table->units[u].size() != model.units[u].parameters.size()) return nullptr;
  return &*table;
}

std::unique_ptr<ShardingStrategy> make_sharding(OwnedInstance plugin, SharedDtypes dtypes) {
  return std::make_unique<Sharding>(std::move(plugin), std::move(dtypes));
}

}  // namespace shale

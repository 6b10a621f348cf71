#include "core/loader/adapters.h"
#include "core/loader/sharding_builder.h"

namespace shale {
namespace {

class Sharding : public ShardingStrategy {
 public:
  Sharding(OwnedInstance plugin, SharedDtypes dtypes)
      : plugin_(std::move(plugin)), dtypes_(std::move(dtypes)), table_(plugin_->table<shale_sharding>(SHALE_SHARDING)) {
    if (table_.plan == nullptr) plugin_->refuse(Code::config, "its table of shale.sharding/1 has no plan: a bug of it");
    if (const auto table = plugin_->optional_table<shale_exchange>(SHALE_EXCHANGE)) {
      exchange_ = make_exchange(*plugin_, *table);
      own_.gather = table->gather != nullptr, own_.reduce = table->reduce != nullptr;
      own_.replicate = table->replicate != nullptr, own_.step_end = table->step_end != nullptr;
    }
    if (const auto table = plugin_->optional_table<shale_outer>(SHALE_OUTER)) {
      if (table->apply == nullptr)
        plugin_->refuse(Code::config, "its table of shale.sharding.outer/1 has no apply: a bug of it");
      outer_ = make_outer(*plugin_, *table);
      own_.outer = true;
    }
  }

  ShardPlan plan(const ModelInfo& model, const Topology& topology) override {
    auto view = std::make_unique<ModelView>(model, dtypes_->of(model));
    topology_ = std::make_unique<TopologyView>(topology);
    check_capabilities(topology);
    ShardingBuilder builder(model.units.size(), topology.world, own_.outer);
    plugin_->call("plan", Code::config,
                  [&] { return table_.plan(plugin_->self(), view->c(), topology_->c(), builder.c()); });
    ShardPlan plan = builder.take_plan(*plugin_, model);
    plan.own = own_;
    check_plan(*plugin_, [&] { validate(plan, model, topology); });
    plugin_->hooks().use(plan, *view);
    model_ = std::move(view);
    return plan;
  }

  Exchange* exchange() override { return exchange_.get(); }
  OuterStep* outer() override { return outer_.get(); }

 private:
  void check_capabilities(const Topology& topology) const {
    const std::uint64_t caps = plugin_->descriptor().caps;
    if ((caps & SHALE_CAP_NEEDS_EVEN_NODES) && topology_->c()->node_size == 0)
      plugin_->refuse(Code::config, str("needs nodes with equal numbers of ranks, but the ", topology.world,
                                        " ranks lie unevenly on ", topology_->c()->n_nodes, " nodes"));
    if (own_.any() && (caps & (topology.cuda ? SHALE_CAP_CUDA : SHALE_CAP_CPU)) == 0)
      plugin_->refuse(Code::config, str("its hooks do not take ", topology.cuda ? "CUDA" : "CPU",
                                        " memory, which this run trains in: change training.device or the plugin"));
  }

  OwnedInstance plugin_;
  SharedDtypes dtypes_;
  shale_sharding table_;
  OwnHooks own_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<OuterStep> outer_;
  std::unique_ptr<ModelView> model_;  // what the latest plan was given is kept until the next
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

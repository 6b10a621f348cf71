#include "core/loader/adapters.h"
#include "core/loader/plan_builder.h"

namespace shale {
namespace {

class Builder : public PlanBuilder {
 public:
  explicit Builder(std::size_t units) {
    std::array<Tier, kMemoryClasses> row;
    row.fill(Tier::device);
    plan_.units.assign(units, row);
    c_ = {sizeof c_, 0, this, place, set_pipeline};
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  const shale_offload_builder* c() const { return &c_; }

  OffloadPlan take_plan(const PluginInstance& plugin) {
    finish(plugin, "plan");
    return std::move(plan_);
  }

 private:
  static Builder& me(void* ctx) { return *static_cast<Builder*>(ctx); }

  static shale_status* place(void* ctx, std::uint32_t unit, std::uint32_t memory_class, std::uint32_t tier) {
    auto& units = me(ctx).plan_.units;
    return me(ctx).answer([&]() -> shale_status* {
      if (unit != SHALE_ALL_UNITS && unit >= units.size())
        return bad_argument("unit", str("is ", unit, ", the model has ", units.size(), " units"));
      if (memory_class >= SHALE_N_CLASSES) return bad_argument("memory_class", str("is ", memory_class));
      if (tier > SHALE_TIER_STORE) return bad_argument("tier", str("is ", tier));
      if (tier == SHALE_TIER_STORE)
        return unsupported("tier", "STORE needs shale.offload.store/1, which this shale does not call");
      for (std::size_t u = 0; u < units.size(); ++u)
        if (unit == SHALE_ALL_UNITS || unit == u) units[u][memory_class] = static_cast<Tier>(tier);
      return nullptr;
    });
  }
  static shale_status* set_pipeline(void* ctx, std::uint64_t tile_bytes, std::uint32_t depth, std::uint32_t) {
    return me(ctx).answer([&]() -> shale_status* {
      if (tile_bytes == 0 && depth == 0) return nullptr;  // the host decides
      return unsupported("tile_bytes", "this shale moves nothing between tiers: leave tile and depth 0");
    });
  }

  OffloadPlan plan_;
  shale_offload_builder c_;
};

class Offload : public OffloadPolicy {
 public:
  Offload(OwnedInstance plugin, SharedDtypes dtypes)
      : plugin_(std::move(plugin)), dtypes_(std::move(dtypes)), table_(plugin_->table<shale_offload>(SHALE_OFFLOAD)) {
    if (table_.plan == nullptr) plugin_->refuse(Code::config, "its table of shale.offload/1 has no plan: a bug of it");
  }

  OffloadPlan plan(const ModelInfo& model, const Topology& topology, const OffloadAsk& ask) override {
    check(ask.bytes.size() == model.units.size(), "offload: figures of ", ask.bytes.size(), " units for a model of ",
          model.units.size());
    model_ = std::make_unique<ModelView>(model, dtypes_->of(model));
    topology_ = std::make_unique<TopologyView>(topology);
    std::vector<std::uint64_t> bytes;
    for (const auto& row : ask.bytes) bytes.insert(bytes.end(), row.begin(), row.end());
    const shale_offload_ask c{
        sizeof c,     static_cast<std::uint32_t>(model.units.size()), kMemoryClasses, 0, bytes.data(), ask.device_free,
        ask.host_free};
    Builder builder(model.units.size());
    plugin_->call("plan", Code::config,
                  [&] { return table_.plan(plugin_->self(), model_->c(), topology_->c(), &c, builder.c()); });
    OffloadPlan plan = builder.take_plan(*plugin_);
    check_plan(*plugin_, [&] { validate(plan, model, topology); });
    return plan;
  }

 private:
  OwnedInstance plugin_;
  SharedDtypes dtypes_;
  shale_offload table_;
  std::unique_ptr<ModelView> model_;
  std::unique_ptr<TopologyView> topology_;
};

}  // namespace

std::unique_ptr<OffloadPolicy> make_offload(OwnedInstance plugin, SharedDtypes dtypes) {
  return std::make_unique<Offload>(std::move(plugin), std::move(dtypes));
}

}  // namespace shale

#include <cmath>

#include "core/loader/adapters.h"
#include "core/loader/dtypes.h"
#include "core/loader/plan_builder.h"

namespace shale {
namespace {

class Builder : public PlanBuilder {
 public:
  explicit Builder(const ModelView& model) : model_(model), set_(model.parameters(), false) {
    for (const UnitInfo& u : model.info().units) table_.units.emplace_back(u.parameters.size());
    c_ = {sizeof c_, 0, this, set_param, set_linear, set_loss_scale, add_state};
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  const shale_precision_builder* c() const { return &c_; }

  PrecisionTable take_table(const PluginInstance& plugin) {
    finish(plugin, "plan");
    for (std::uint32_t id = 0; id < set_.size(); ++id)
      if (!set_[id])
        plugin.refuse(Code::config, str("plan: no dtypes were given for parameter ", id, " (", model_.name(id),
                                        "); every parameter needs set_param: a bug of the plugin"));
    return std::move(table_);
  }

 private:
  static Builder& me(void* ctx) { return *static_cast<Builder*>(ctx); }

  static shale_status* set_param(void* ctx, std::uint32_t id, const shale_param_precision* p) {
    return me(ctx).answer([&] { return me(ctx).set(id, p); });
  }
  static shale_status* set_linear(void* ctx, std::uint32_t, const shale_linear_recipe*) {
    return me(ctx).answer([] { return unsupported("linear", "this shale has no quantised matrix products"); });
  }
  static shale_status* set_loss_scale(void* ctx, const shale_loss_scale* s) {
    return me(ctx).answer([&] { return me(ctx).set_scale(s); });
  }
  static shale_status* add_state(void* ctx, const shale_state*, std::uint32_t*) {
    return me(ctx).answer([] { return unsupported("state", "this shale calls no hooks that could use state"); });
  }

  static shale_status* read_dtypes(const shale_param_precision& p, ParameterPrecision& out) {
    struct Role {
      const char* name;
      std::uint32_t given;
      at::ScalarType* to;
    };
    const Role roles[] = {{"master", p.master, &out.master},   {"compute", p.compute, &out.compute},
                          {"gather", p.gather, &out.gather},   {"grad", p.grad, &out.grad},
                          {"reduce", p.reduce, &out.reduce},   {"accumulate", p.accumulate, &out.accumulate},
                          {"moments", p.moments, &out.moments}};
    for (const Role& r : roles) {
      const auto dtype = dtype_from_c(r.given);
      if (!dtype) return bad_argument(r.name, str("is ", r.given, ", no dtype of this shale; every role needs one"));
      *r.to = *dtype;
    }
    return nullptr;
  }

  shale_status* set(std::uint32_t id, const shale_param_precision* theirs) {
    if (id != SHALE_ALL_PARAMS && id >= set_.size())
      return bad_argument("param", str("is ", id, ", the model has ", set_.size(), " parameters"));
    shale_param_precision p;
    if (!take(theirs, p))
      return bad_argument("precision", str("has ", theirs ? size_of(theirs) : 0, " bytes, ABI 0.1 has ",
                                           kBaseline<shale_param_precision>));
    ParameterPrecision dtypes;
    if (auto* problem = read_dtypes(p, dtypes)) return problem;
    if (p.master_rounding > SHALE_ROUND_STOCHASTIC)
      return bad_argument("master_rounding", str("is ", p.master_rounding));
    if (p.master_rounding == SHALE_ROUND_STOCHASTIC)
      return unsupported("master_rounding", "this shale does not round stochastically");
    if (p.moments_block != 0) return unsupported("moments_block", "this shale has no 8-bit moments");
    for (std::uint32_t k = 0; k < set_.size(); ++k) {
      if (id != SHALE_ALL_PARAMS && id != k) continue;
      const auto place = model_.place(k);
      table_.units[place.unit][place.parameter] = dtypes;
      set_[k] = true;
    }
    return nullptr;
  }

  shale_status* set_scale(const shale_loss_scale* theirs) {
    shale_loss_scale s;
    if (!take(theirs, s))
      return bad_argument(
          "loss_scale", str("has ", theirs ? size_of(theirs) : 0, " bytes, ABI 0.1 has ", kBaseline<shale_loss_scale>));
    constexpr std::uint32_t kMost = 1u << 30;
    const std::pair<const char*, double> numbers[] = {
        {"initial", s.initial}, {"growth", s.growth}, {"backoff", s.backoff}, {"min", s.min}, {"max", s.max}};
    for (const auto& [name, value] : numbers) {
      int exponent = 0;
      if (!std::isfinite(value) || value <= 0 || std::frexp(value, &exponent) != 0.5)
        return bad_argument(name, str("must be a power of two (got ", value, ")"));
    }
    if (s.growth < 1) return bad_argument("growth", str("must be at least 1 (got ", s.growth, ")"));
    if (s.backoff > 1) return bad_argument("backoff", str("must be at most 1 (got ", s.backoff, ")"));
    if (s.min > s.initial || s.initial > s.max)
      return bad_argument("initial", str("must be ", s.min, "..", s.max, " (got ", s.initial, ")"));
    if (s.growth_steps > kMost || s.hysteresis > kMost || s.max_skips > kMost)
      return bad_argument("growth_steps", str("counts must be at most ", kMost));
    table_.loss_scale = LossScale{.initial = s.initial,
                                  .growth = s.growth,
                                  .backoff = s.backoff,
                                  .min = s.min,
                                  .max = s.max,
                                  .growth_steps = static_cast<int>(s.growth_steps),
                                  .hysteresis = static_cast<int>(s.hysteresis),
                                  .max_skips = static_cast<int>(s.max_skips)};
    return nullptr;
  }

  const ModelView& model_;
  std::vector<bool> set_;
  PrecisionTable table_;
  shale_precision_builder c_;
};

class Precision : public PrecisionPolicy {
 public:
  Precision(OwnedInstance plugin, SharedDtypes dtypes)
      : plugin_(std::move(plugin)),
        dtypes_(std::move(dtypes)),
        table_(plugin_->table<shale_precision>(SHALE_PRECISION)) {
    if (table_.plan == nullptr)
      plugin_->refuse(Code::config, "its table of shale.precision/1 has no plan: a bug of it");
  }

  PrecisionTable plan(const ModelInfo& model, const Topology& topology) override {
    model_ = std::make_unique<ModelView>(model, nullptr);
    topology_ = std::make_unique<TopologyView>(topology);
    Builder builder(*model_);
    plugin_->call("plan", Code::config,
                  [&] { return table_.plan(plugin_->self(), model_->c(), topology_->c(), builder.c()); });
    PrecisionTable table = builder.take_table(*plugin_);
    check_plan(*plugin_, [&] { validate(table, model); });
    dtypes_->table = table;
    return table;
  }

 private:
  OwnedInstance plugin_;
  SharedDtypes dtypes_;
  shale_precision table_;
  std::unique_ptr<ModelView> model_;
  std::unique_ptr<TopologyView> topology_;
};

}  // namespace

std::unique_ptr<PrecisionPolicy> make_precision(OwnedInstance plugin, SharedDtypes dtypes) {
  return std::make_unique<Precision>(std::move(plugin), std::move(dtypes));
}

}  // namespace shale

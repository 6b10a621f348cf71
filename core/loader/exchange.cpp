// The strategy's own work in a step, over shale.sharding.exchange/1 and shale.sharding.outer/1.
#include "core/sharding/exchange.h"

#include "core/loader/adapters.h"
#include "core/loader/hook.h"
#include "core/loader/tensor_view.h"

namespace shale {
namespace {

std::uint64_t number(std::int64_t n) { return static_cast<std::uint64_t>(n); }

shale_exchange_call call_to_c(const ExchangeCall& call, const shale_flat* flat, shale_lane* lane) {
  shale_exchange_call c{};
  c.struct_size = sizeof c, c.purpose = static_cast<std::uint32_t>(call.purpose);
  c.group = static_cast<std::uint32_t>(call.group), c.ways = static_cast<std::uint32_t>(call.ways);
  c.step = number(call.step);
  c.micro_step = static_cast<std::uint32_t>(call.micro_step), c.is_last = call.last;
  c.grad_scale = call.grad_scale, c.after_skip = call.after_skip;
  c.flat = flat, c.lane = lane;
  return c;
}

HookCall where(const char* name, const ExchangeCall& c, const at::Tensor& t) {
  return {name, c.step, c.flat, c.range, c.lane, t.device(), {}};
}

class OwnExchange final : public Exchange {
 public:
  OwnExchange(PluginInstance& plugin, const shale_exchange& table) : plugin_(plugin), table_(table) {}

  void gather(const ExchangeCall& call, const at::Tensor& shard, const at::Tensor& full) override {
    const shale_tensor from = tensor_to_c(shard, Use::read), to = tensor_to_c(full, Use::write);
    run_hook(plugin_, where("gather", call, full), [&](const shale_flat* flat, shale_lane* lane) {
      const shale_exchange_call c = call_to_c(call, flat, lane);
      return table_.gather(plugin_.self(), &c, &from, &to);
    });
  }
  void reduce(const ExchangeCall& call, const at::Tensor& full, const at::Tensor& shard) override {
    const shale_tensor from = tensor_to_c(full, Use::write), to = tensor_to_c(shard, Use::write);
    run_hook(plugin_, where("reduce", call, full), [&](const shale_flat* flat, shale_lane* lane) {
      const shale_exchange_call c = call_to_c(call, flat, lane);
      return table_.reduce(plugin_.self(), &c, &from, &to);
    });
  }
  void replicate(const ExchangeCall& call, const at::Tensor& shard) override {
    const shale_tensor t = tensor_to_c(shard, Use::write);
    run_hook(plugin_, where("replicate", call, shard), [&](const shale_flat* flat, shale_lane* lane) {
      const shale_exchange_call c = call_to_c(call, flat, lane);
      return table_.replicate(plugin_.self(), &c, &t);
    });
  }
  void step_end(std::int64_t step, bool skipped) override {
    const std::string doing = str("step_end of step ", step);
    plugin_.call(doing.c_str(), Code::internal,
                 [&] { return table_.step_end(plugin_.self(), number(step), skipped ? 1 : 0); });
  }

 private:
  PluginInstance& plugin_;
  const shale_exchange table_;
};

class OwnOuter final : public OuterStep {
 public:
  OwnOuter(PluginInstance& plugin, const shale_outer& table) : plugin_(plugin), table_(table) {}

  void begin(const OuterCall& call, const at::Tensor& master) override {
    if (table_.begin != nullptr) run(where("outer begin", call, master), table_.begin, tensor_to_c(master, Use::read));
  }
  void apply(const OuterCall& call, const at::Tensor& master) override {
    HookCall hook = where("outer apply", call, master);
    hook.changing = at::Tensor();  // the steps wait for it
    run(hook, table_.apply, tensor_to_c(master, Use::write));
  }

 private:
  static HookCall where(const char* name, const OuterCall& c, const at::Tensor& master) {
    return {name, c.step, c.flat, c.range, c.lane, master.device(), master};
  }
  void run(const HookCall& hook, decltype(shale_outer::apply) function, const shale_tensor& master) {
    run_hook(plugin_, hook, [&](const shale_flat* flat, shale_lane* lane) {
      const shale_outer_call c{sizeof c, 0, number(hook.step), flat, lane};
      return function(plugin_.self(), &c, &master);
    });
  }

  PluginInstance& plugin_;
  const shale_outer table_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(PluginInstance& plugin, const shale_exchange& table) {
  return std::make_unique<OwnExchange>(plugin, table);
}
std::unique_ptr<OuterStep> make_outer(PluginInstance& plugin, const shale_outer& table) {
  return std::make_unique<OwnOuter>(plugin, table);
}

}  // namespace shale

#include "core/plan/forecast.h"

#include <algorithm>

#include "core/base/text.h"

namespace shale {
namespace {

std::int64_t width(at::ScalarType t) { return static_cast<std::int64_t>(c10::elementSize(t)); }

// Bytes of the tensors a decoder keeps and makes, per micro-step; e = bytes of an activation element, n = B T rows.
struct Activations {
  const Architecture& a;
  std::int64_t n, e;

  std::int64_t row(std::int64_t columns) const { return n * columns * e; }
  std::int64_t q() const { return a.n_heads * a.head_dim; }
  std::int64_t kv() const { return a.n_kv_heads * a.head_dim; }

  // What a layer keeps for its backward: inputs of the two norms and of the seven products, rotated q and k,
  // attention's output, gate and up; row statistics are small.
  std::int64_t layer_kept() const { return row(a.dim) * 4 + row(q()) * 2 + row(kv()) * 2 + row(a.ffn_dim) * 3; }
  // The most a layer's backward makes on top: gradients of the feed-forward part.
  std::int64_t layer_backward() const { return row(a.ffn_dim) * 3 + row(a.dim) * 2; }
  std::int64_t head_kept() const { return row(a.dim) * 2 + n * a.vocab_size * std::max<std::int64_t>(e, 4); }
  std::int64_t head_backward() const { return n * a.vocab_size * (e < 4 ? 4 + e : 0) + row(a.dim) * 2; }
};

std::int64_t most_alive(const Model& model, const Workload& w, std::int64_t element) {
  const Activations act{model.architecture, w.micro_batch * w.seq_len, element};
  const auto layers = model.architecture.n_layers;
  const auto input = act.row(model.architecture.dim);  // what a checkpointed layer keeps
  const auto kept = w.checkpoint_layers ? input * layers : act.layer_kept() * layers;
  const auto again = w.checkpoint_layers ? act.layer_kept() : 0;
  return kept + std::max(act.head_kept() + act.head_backward(), again + act.layer_backward());
}

}  // namespace

Forecast forecast(const Model& model, const MemoryPlan& memory, const ShardPlan& plan, const Topology& topology,
                  const Workload& work) {
  Forecast f;
  f.masters = memory.masters, f.moments = memory.moments, f.grad_shards = memory.grad_shards;
  f.slots = memory.slots(), f.grad_slots = memory.grads();
  std::int64_t element = 4;
  for (auto& unit : memory.units)
    for (auto& flat : unit.flats) element = width(flat.precision.compute);
  f.activations = most_alive(model, work, element);
  f.process = topology.cuda ? 0 : std::int64_t{150} << 20;
  (void)plan;
  return f;
}

std::string describe(const Forecast& f) {
  const auto mib = [](std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  return str("a rank will take ", mib(f.total()), ": masters ", mib(f.masters), ", moments ", mib(f.moments),
             ", gradient shards ", mib(f.grad_shards), ", weight slots ", mib(f.slots), ", gradient slots ",
             mib(f.grad_slots), ", activations ", mib(f.activations), ", process ", mib(f.process));
}

}  // namespace shale

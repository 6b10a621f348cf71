#include "core/plan/forecast.h"

#include <algorithm>
#include <vector>

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
  const auto input = act.row(model.architecture.dim);  // what a checkpointed unit keeps
  std::int64_t kept = 0, again = 0;
  for (auto& unit : model.info.units) {
    if (unit.kind != UnitKind::layer) continue;
    const auto all = act.layer_kept() * unit.layers;
    kept += w.checkpoint_layers ? input : all;
    if (w.checkpoint_layers) again = std::max(again, all);
  }
  return kept + std::max(act.head_kept() + act.head_backward(), again + act.layer_backward());
}

// Bytes a rank sends for one gather of a unit: its pieces of all flats to the others. again: once more in a step, from
// the kept pieces where there are any.
std::int64_t gather_bytes(const UnitMemory& unit, bool again) {
  std::int64_t bytes = 0;
  for (auto& f : unit.flats)
    if (again && f.kept_ways > 0)
      bytes += f.kept() * (f.kept_ways - 1) * width(f.precision.gather);
    else if (f.ways > 1)
      bytes += f.range.chunk * (f.ways - 1) * width(f.precision.gather);
  return bytes;
}

// Units that take turns in a slot are gathered in forward and again in backward; the last of them is still there when
// the backward begins, and the first when the next micro-step does. One alone in its slot is gathered once a step.
std::int64_t gathers_of_step(const MemoryPlan& memory, int micro_steps) {
  std::int64_t bytes = 0;
  for (std::size_t slot = 0; slot < memory.weight_slots.size(); ++slot) {
    std::vector<std::int64_t> again;
    std::int64_t all_again = 0;
    for (auto& unit : memory.units) {
      if (unit.weight_slot != static_cast<int>(slot)) continue;
      bytes += gather_bytes(unit, false);
      again.push_back(gather_bytes(unit, true));
      all_again += again.back();
    }
    if (again.size() < 2) continue;
    bytes += all_again - again.back();
    bytes += (micro_steps - 1) * (2 * all_again - again.back() - again.front());
  }
  return bytes;
}

void add_reductions(Forecast& f, const MemoryPlan& memory, const ShardPlan& plan, const Topology& topology) {
  for (std::size_t u = 0; u < memory.units.size(); ++u)
    for (auto& flat : memory.units[u].flats) {
      if (flat.layout.frozen) continue;
      const auto& unit = plan.units[u];
      const auto times = unit.reduce_at == SyncAt::boundary ? 1 : topology.micro_steps;
      const auto piece = flat.range.chunk * width(flat.precision.reduce);
      f.reduce_bytes += piece * (flat.ways - 1) * times;
      if (unit.replica_at == SyncAt::never) continue;
      const auto replicas = static_cast<std::int64_t>(members(plan.groups[unit.replica_group], 0).size());
      const bool each = !flat.whole_grads && unit.replica_at == SyncAt::micro_step;
      f.replica_bytes += 2 * piece * (replicas - 1) / replicas * (each ? times : 1);
    }
}

}  // namespace

Forecast forecast(const Model& model, const MemoryPlan& memory, const ShardPlan& plan, const Topology& topology,
                  const Workload& work) {
  Forecast f;
  f.masters = memory.masters, f.moments = memory.moments, f.grad_shards = memory.grad_shards;
  f.hooks = memory.states + memory.scratch;
  f.slots = memory.slots(), f.grad_slots = memory.grads(), f.kept = memory.kept;
  std::int64_t element = 4;
  for (auto& unit : memory.units)
    for (auto& flat : unit.flats) element = width(flat.precision.compute);
  f.activations = most_alive(model, work, element);
  f.process = work.process, f.staging = work.staging;
  f.own_exchanges = plan.own.any();
  f.gather_bytes = gathers_of_step(memory, topology.micro_steps);
  add_reductions(f, memory, plan, topology);
  return f;
}

std::string describe(const Forecast& f) {
  const auto text = [](std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  return str("a rank will take ", text(f.total()), ": masters ", text(f.masters), ", moments ", text(f.moments),
             ", gradient shards ", text(f.grad_shards), ", weight slots ", text(f.slots), ", gradient slots ",
             text(f.grad_slots), f.kept > 0 ? ", kept pieces " + text(f.kept) : "",
             f.hooks > 0 ? ", state and scratch of the strategy " + text(f.hooks) : "", ", activations ",
             text(f.activations), f.staging > 0 ? ", copies for snapshots " + text(f.staging) : "", ", process ",
             text(f.process),
             f.own_exchanges ? "; without the strategy's own exchanges it would send " : "; it will send ",
             text(f.sent()), " a step");
}

}  // namespace shale

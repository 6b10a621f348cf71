#include "core/engine/states.h"

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/model/model.h"

namespace shale {

StateStore::StateStore(const ShardPlan& plan, const std::deque<Shard>& shards, at::Device device, std::string owner,
                       std::uint64_t seed)
    : owner_(std::move(owner)), seed_(seed) {
  for (std::size_t i = 0; i < plan.states.size(); ++i) {
    const auto& spec = plan.states[i];
    const auto add = [&](const Shard* shard, std::int64_t numel) {
      const auto options = at::TensorOptions(spec.dtype).device(device);
      states_.push_back({&spec, static_cast<int>(i), shard, at::empty({numel}, options)});
    };
    if (spec.scope == StateScope::global || spec.scope == StateScope::rank) {
      add(nullptr, spec.numel);
      continue;
    }
    for (auto& shard : shards)
      if (!shard.layout.frozen && (spec.unit == kAllUnits || spec.unit == shard.layout.unit))
        add(&shard, shard.range.length);
  }
}

void StateStore::fill() {
  for (auto& state : states_) first_value(state);
}

const State& StateStore::at(int index, const FlatLayout* flat) const {
  for (auto& s : states_) {
    const bool same =
        s.shard ? flat && flat->unit == s.shard->layout.unit && flat->index == s.shard->layout.index : !flat;
    if (s.index == index && same) return s;
  }
  fail(Code::internal, "there is no state ", index, flat ? str(" of flat ", flat->index, " of unit ", flat->unit) : "",
       ": a bug of the sharding plugin");
}

at::Tensor StateStore::find(int index, const FlatLayout* flat) const { return at(index, flat).value; }
void StateStore::reset(int index, const FlatLayout* flat) const { first_value(at(index, flat)); }

void StateStore::first_value(const State& s) const {
  if (s.spec->first == StateFirst::fill) {
    s.value.fill_(s.spec->fill);
  } else if (s.spec->first == StateFirst::master) {
    check(s.shard != nullptr, "state ", s.spec->name, " has no master to begin from");
    s.value.copy_(s.shard->master);
  } else {
    const auto begin = s.shard ? s.shard->range.begin : 0;
    const auto where = s.shard ? str(".", s.shard->layout.unit, ".", s.shard->layout.index) : "";
    s.value.copy_(normal_values(seed_, str(owner_, "/", s.spec->name, where), begin, begin + s.value.numel()));
  }
}

}  // namespace shale

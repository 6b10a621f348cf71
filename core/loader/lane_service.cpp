// shale.lane/1.
#include <limits>

#include "core/loader/hook_services.h"
#include "core/loader/tensor_view.h"

namespace shale {
namespace {

HookServices& services(void* ctx) { return *static_cast<HookServices*>(ctx); }

shale_status* bad(const char* argument, const std::string& text) {
  return make_status(SHALE_BAD_ARGUMENT, argument, text);
}

void* stream(void* ctx, shale_lane* lane) {
  void* out = nullptr;
  StatusFree{}(services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    out = l.lane->stream();
    return nullptr;
  }));
  return out;
}

shale_status* scratch(void* ctx, shale_lane* lane, std::uint64_t bytes, void** out) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    if (out == nullptr) return bad("out", "is NULL");
    *out = nullptr;
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return make_status(SHALE_OUT_OF_MEMORY, "scratch", str(bytes, " bytes"));
    try {
      *out = l.lane->scratch(static_cast<std::int64_t>(bytes));
    } catch (const Error& e) {  // more than planned
      return new shale_status{SHALE_OUT_OF_MEMORY, "scratch", e.what(), e};
    }
    return nullptr;
  });
}

// The layout of the flat whose part of the state is meant; null for a state that is one tensor in all.
shale_status* find_state(HookServices& s, std::uint32_t index, const shale_flat* flat, const FlatLayout*& layout) {
  const StateSpec spec = s.state(index);
  if (spec.name.empty()) return bad("state", str("is ", index, ", the plan has ", s.states()));
  const bool single = spec.scope == StateScope::global || spec.scope == StateScope::rank;
  layout = nullptr;
  if (single && flat != nullptr) return bad("flat", str("must be NULL: state ", spec.name, " is one tensor in all"));
  if (single) return nullptr;
  if (flat == nullptr) return bad("flat", str("is NULL: state ", spec.name, " is one tensor per flat"));
  layout = s.flats().layout(flat);
  if (layout == nullptr) return bad("flat", "is not one that a hook of this run was handed");
  if (layout->frozen) return bad("flat", str("is frozen: state ", spec.name, " has nothing for it"));
  if (spec.unit != kAllUnits && spec.unit != layout->unit)
    return bad("flat", str("is of unit ", layout->unit, ", state ", spec.name, " of unit ", spec.unit));
  return nullptr;
}

shale_status* state(void* ctx, shale_lane* lane, std::uint32_t index, const shale_flat* flat, shale_tensor* out) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    if (out == nullptr || size_of(out) < kBaseline<shale_tensor>)
      return bad("out", "is NULL or has no struct_size: make it with SHALE_VAR");
    const FlatLayout* layout = nullptr;
    if (auto* problem = find_state(services(ctx), index, flat, layout)) return problem;
    const shale_tensor t = tensor_to_c(l.lane->state(static_cast<int>(index), layout), Use::write);
    const std::uint32_t size = std::min<std::uint32_t>(out->struct_size, sizeof t);
    std::memcpy(static_cast<void*>(out), &t, size);
    out->struct_size = size;
    return nullptr;
  });
}

shale_status* reset(void* ctx, shale_lane* lane, std::uint32_t index, const shale_flat* flat) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    const FlatLayout* layout = nullptr;
    if (auto* problem = find_state(services(ctx), index, flat, layout)) return problem;
    l.lane->reset_state(static_cast<int>(index), layout);
    return nullptr;
  });
}

}  // namespace

shale_lane_service lane_table(HookServices* services) {
  return {sizeof(shale_lane_service), 0, services, stream, scratch, state, reset};
}

}  // namespace shale

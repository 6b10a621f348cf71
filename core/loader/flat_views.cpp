#include "core/loader/flat_views.h"

#include "core/base/error.h"

namespace shale {

void FlatViews::use(const ModelView* model) {
  const std::lock_guard lock(mutex_);
  model_ = model;
  for (auto& [place, entry] : entries_) entry->layout = nullptr;
}

const shale_flat* FlatViews::view(const FlatLayout& layout, const ShardRange& range) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[{layout.unit, layout.index}];
  if (!entry) {
    entry = std::make_unique<Entry>();
    known_[&entry->c] = entry.get();
  }
  const ShardRange& r = entry->range;
  // Other lanes may be reading it: written only when it is of another plan.
  if (entry->layout != &layout || r.chunk != range.chunk || r.begin != range.begin || r.length != range.length)
    fill(*entry, layout, range);
  return &entry->c;
}

void FlatViews::fill(Entry& entry, const FlatLayout& layout, const ShardRange& range) const {
  check(model_ != nullptr, "a hook is called before there is a plan");
  const shale_model& model = *model_->c();
  const auto unit = static_cast<std::uint32_t>(layout.unit);
  check(layout.unit >= 0 && unit < model.n_units && layout.offsets.size() == layout.parameters.size(),
        "a flat of unit ", layout.unit, " in a model of ", model.n_units);
  entry.params.clear(), entry.offsets.clear();
  for (std::size_t k = 0; k < layout.parameters.size(); ++k) {
    const auto p = static_cast<std::uint32_t>(layout.parameters[k]);
    check(p < model.units[unit]->n_params, "a flat of unit ", unit, " with parameter ", p);
    entry.params.push_back(model.units[unit]->params[p]);
    entry.offsets.push_back(static_cast<std::uint64_t>(layout.offsets[k]));
  }
  entry.layout = &layout, entry.range = range;
  entry.c = {.struct_size = sizeof(shale_flat),
             .unit = unit,
             .index = static_cast<std::uint32_t>(layout.index),
             .n_params = static_cast<std::uint32_t>(entry.params.size()),
             .numel = static_cast<std::uint64_t>(layout.numel),
             .chunk = static_cast<std::uint64_t>(range.chunk),
             .begin = static_cast<std::uint64_t>(range.begin),
             .length = static_cast<std::uint64_t>(range.length),
             .params = entry.params.data(),
             .offsets = entry.offsets.data()};
}

const FlatLayout* FlatViews::layout(const shale_flat* flat) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(flat);
  return known == known_.end() ? nullptr : known->second->layout;
}

std::string FlatViews::name(const FlatLayout& layout) const {
  const std::lock_guard lock(mutex_);
  const auto unit = static_cast<std::size_t>(layout.unit);
  const bool there = model_ != nullptr && unit < model_->info().units.size();
  const std::string name = there ? model_->info().units[unit].name : str("unit ", layout.unit);
  return layout.index == 0 ? name : str(name, " (flat ", layout.index, ")");
}

}  // namespace shale

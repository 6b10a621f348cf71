#include "core/loader/model_view.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/loader/dtypes.h"

namespace shale {
namespace {

bool borrowed(const ModelInfo& model, const std::string& name) {
  return std::any_of(model.units.begin(), model.units.end(), [&](const UnitInfo& u) {
    return std::find(u.borrows.begin(), u.borrows.end(), name) != u.borrows.end();
  });
}

void set_dtypes(shale_param& p, const ParameterPrecision& t) {
  p.master_dtype = dtype_to_c(t.master), p.compute_dtype = dtype_to_c(t.compute);
  p.gather_dtype = dtype_to_c(t.gather), p.grad_dtype = dtype_to_c(t.grad);
  p.reduce_dtype = dtype_to_c(t.reduce), p.accumulate_dtype = dtype_to_c(t.accumulate);
}

}  // namespace

ModelView::ModelView(const ModelInfo& model, const PrecisionTable* dtypes) : info_(model) {
  std::size_t total = 0;
  for (const UnitInfo& u : info_.units) total += u.parameters.size();
  params_.reserve(total), param_pointers_.reserve(total), places_.reserve(total), units_.reserve(info_.units.size());
  for (std::size_t u = 0; u < info_.units.size(); ++u) {
    const UnitInfo& unit = info_.units[u];
    const std::size_t first = params_.size();
    for (std::size_t k = 0; k < unit.parameters.size(); ++k) add_parameter(unit.parameters[k], {u, k}, dtypes);
    std::uint64_t numel = 0;
    for (std::size_t k = first; k < params_.size(); ++k) numel += params_[k].numel;
    units_.push_back({sizeof(shale_unit), static_cast<std::uint32_t>(u), static_cast<std::uint32_t>(unit.kind),
                      static_cast<std::uint32_t>(unit.parameters.size()), to_c(unit.name), numel,
                      param_pointers_.data() + first});
    unit_pointers_.push_back(&units_.back());
    model_.numel += numel;
  }
  for (const int u : info_.order) order_.push_back(static_cast<std::uint32_t>(u));
  model_.struct_size = sizeof model_;
  model_.n_units = static_cast<std::uint32_t>(units_.size()), model_.units = unit_pointers_.data();
  model_.n_order = static_cast<std::uint32_t>(order_.size()), model_.order = order_.data();
}

void ModelView::add_parameter(const ParameterInfo& info, Place place, const PrecisionTable* dtypes) {
  check(info.shape.size() <= SHALE_MAX_DIMS, info.name, " has ", info.shape.size(), " dimensions");
  shale_param p{};
  p.struct_size = sizeof p;
  p.id = static_cast<std::uint32_t>(params_.size());
  p.name = to_c(info.name);
  p.flags = info.role | (info.frozen ? SHALE_PARAM_FROZEN : 0) | (borrowed(info_, info.name) ? SHALE_PARAM_TIED : 0);
  p.ndim = static_cast<std::uint32_t>(info.shape.size());
  std::copy(info.shape.begin(), info.shape.end(), p.shape);
  p.numel = static_cast<std::uint64_t>(numel(info.shape));
  if (dtypes != nullptr) set_dtypes(p, dtypes->units.at(place.unit).at(place.parameter));
  params_.push_back(p);
  param_pointers_.push_back(&params_.back());
  places_.push_back(place);
}

const std::string& ModelView::name(std::uint32_t id) const {
  const Place p = place(id);
  return info_.units[p.unit].parameters[p.parameter].name;
}

TopologyView::TopologyView(const Topology& t) : nodes_(t.node_of_rank) {
  check(t.world > 0 && nodes_.size() == static_cast<std::size_t>(t.world), "topology of ", t.world, " ranks has ",
        nodes_.size(), " node numbers");
  const std::uint32_t n_nodes = *std::max_element(nodes_.begin(), nodes_.end()) + 1;
  std::vector<std::uint32_t> sizes(n_nodes, 0);
  for (const std::uint32_t node : nodes_) ++sizes[node];
  const bool even = std::all_of(sizes.begin(), sizes.end(), [&](std::uint32_t s) { return s == sizes[0]; });
  topology_.struct_size = sizeof topology_;
  topology_.world = static_cast<std::uint32_t>(t.world);
  topology_.n_nodes = n_nodes, topology_.node_size = even ? sizes[0] : 0;
  topology_.node_of_rank = nodes_.data();
  topology_.device_type = t.cuda ? SHALE_DEVICE_CUDA : SHALE_DEVICE_CPU, topology_.device_arch = t.device_arch;
  topology_.micro_steps = static_cast<std::uint32_t>(t.micro_steps), topology_.device_bytes = t.device_bytes;
}

}  // namespace shale

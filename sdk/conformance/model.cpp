#include "model.h"

namespace shale::conform {
namespace {

shale_topology topology_of(const std::vector<std::uint32_t>& node_of_rank, std::uint32_t node_size) {
  shale_topology t{};
  t.world = static_cast<std::uint32_t>(node_of_rank.size());
  t.n_nodes = node_of_rank.back() + 1;
  t.node_size = t.world % node_size == 0 ? node_size : t.n_nodes == 1 ? t.world : 0;
  t.node_of_rank = node_of_rank.data();
  t.device_type = SHALE_DEVICE_CPU;
  t.micro_steps = 2;
  t.device_bytes = std::uint64_t{1} << 36;
  return t;
}

std::vector<std::uint32_t> nodes(std::uint32_t world, std::uint32_t node_size) {
  std::vector<std::uint32_t> n(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) n[rank] = rank / node_size;
  return n;
}

}  // namespace

FakeModel::FakeModel(const ModelShape& shape) {
  const std::uint32_t shared = shape.tied ? SHALE_PARAM_TIED : 0, frozen = shape.frozen ? SHALE_PARAM_FROZEN : 0;
  add_unit("embedding", SHALE_UNIT_EMBEDDING);
  add_param("model.embed_tokens.weight", {97, 24}, SHALE_PARAM_EMBEDDING | shared | frozen);
  for (int k = 0; k < shape.layers; ++k) add_layer(k, shape);
  add_unit("head", SHALE_UNIT_HEAD);
  add_param("model.norm.weight", {24}, SHALE_PARAM_NORM);
  if (!shape.tied) add_param("lm_head.weight", {97, 24}, SHALE_PARAM_HEAD | SHALE_PARAM_LINEAR);
  for (std::uint32_t k = 0; k + 1 < units_.size(); ++k) order_.push_back(k);
  if (shape.repeated) order_.push_back(1);
  order_.push_back(static_cast<std::uint32_t>(units_.size()) - 1);
  set_dtypes(shape.numbers);
  link();
}

void FakeModel::add_layer(int k, const ModelShape& shape) {
  const std::string layer = "model.layers." + std::to_string(k) + ".";
  add_unit("layers." + std::to_string(k), SHALE_UNIT_LAYER);
  if (shape.uneven && k % 3 == 2) {
    add_param(layer + "self_attn.q_proj.weight", {2, 3}, SHALE_PARAM_LINEAR);
  } else if (shape.uneven) {
    add_param(layer + "input_layernorm.weight", {k % 3 == 0 ? 1 : 3}, SHALE_PARAM_NORM);
  } else {
    add_param(layer + "input_layernorm.weight", {24}, SHALE_PARAM_NORM);
    add_param(layer + "self_attn.q_proj.weight", {24, 24}, SHALE_PARAM_LINEAR);
    add_param(layer + "mlp.down_proj.weight", {24, 57}, SHALE_PARAM_LINEAR);
  }
}

void FakeModel::set_dtypes(Numbers numbers) {
  const std::uint32_t wide = numbers == Numbers::f64 ? SHALE_F64 : SHALE_F32;
  for (auto& p : params_) {
    p->master_dtype = p->compute_dtype = p->gather_dtype = p->grad_dtype = wide;
    p->reduce_dtype = p->accumulate_dtype = wide;
    if (numbers == Numbers::bf16_mixed && (p->flags & SHALE_PARAM_NORM) == 0)
      p->compute_dtype = p->gather_dtype = p->grad_dtype = SHALE_BF16;
  }
}

void FakeModel::add_unit(const std::string& name, std::uint32_t kind) {
  names_.push_back(std::make_unique<std::string>(name));
  SHALE_VAR(shale_unit, u);
  u.index = static_cast<std::uint32_t>(units_.size());
  u.kind = kind;
  u.name = {names_.back()->data(), names_.back()->size()};
  units_.push_back(std::make_unique<shale_unit>(u));
  params_of_unit_.emplace_back();
}

void FakeModel::add_param(const std::string& name, std::vector<std::int64_t> shape, std::uint32_t flags) {
  names_.push_back(std::make_unique<std::string>(name));
  SHALE_VAR(shale_param, p);
  p.id = static_cast<std::uint32_t>(params_.size());
  p.name = {names_.back()->data(), names_.back()->size()};
  p.flags = flags;
  p.ndim = static_cast<std::uint32_t>(shape.size());
  p.numel = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) p.shape[d] = shape[d], p.numel *= static_cast<std::uint64_t>(shape[d]);
  params_.push_back(std::make_unique<shale_param>(p));
  params_of_unit_.back().push_back(params_.back().get());
  units_.back()->numel += p.numel;
}

void FakeModel::link() {
  for (std::size_t k = 0; k < units_.size(); ++k) {
    units_[k]->n_params = static_cast<std::uint32_t>(params_of_unit_[k].size());
    units_[k]->params = params_of_unit_[k].data();
    unit_pointers_.push_back(units_[k].get());
    model_.numel += units_[k]->numel;
  }
  model_.struct_size = sizeof model_;
  model_.n_units = static_cast<std::uint32_t>(units_.size());
  model_.units = unit_pointers_.data();
  model_.order = order_.data();
  model_.n_order = static_cast<std::uint32_t>(order_.size());
}

FakeTopology::FakeTopology(std::uint32_t world, std::uint32_t node_size, std::size_t bytes)
    : node_of_rank_(nodes(world, node_size)), table_([&] {
        const shale_topology t = topology_of(node_of_rank_, node_size);
        return Exactly(&t, sizeof t, bytes);
      }()) {}

}  // namespace shale::conform

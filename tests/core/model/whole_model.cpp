#include "tests/core/model/whole_model.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

namespace shale::test {

WholeModel::WholeModel(const Architecture& a, std::int64_t max_seq_len, at::ScalarType dtype, const Values& values,
                       bool train)
    : model_(make_model(a, {}, max_seq_len)) {
  for (const auto& unit : model_.info.units) {
    for (const auto& parameter : unit.parameters) {
      Weight& weight = weights_[parameter.name];
      weight.value = values(parameter).to(dtype).reshape(parameter.shape).contiguous();
      weight.frozen = !train;
      if (!train) continue;
      weight.grad = at::zeros_like(weight.value);
      weight.value.set_requires_grad(true);
      weight.fresh = (fresh_[parameter.name] = std::make_unique<bool>(true)).get();
    }
  }
}

at::Tensor WholeModel::forward(const at::Tensor& tokens, const at::Tensor& targets) {
  const ModelInput input{tokens, targets};
  at::Tensor x;
  for (std::size_t i = 0; i < model_.info.units.size(); ++i) {
    const auto& unit = model_.info.units[i];
    // Kept for the backward: operators hold on to the weights they were given.
    auto& uses = uses_[i];
    uses.clear();
    for (const auto& parameter : unit.parameters) uses.push_back(weights_.at(parameter.name));
    for (const auto& name : unit.borrows) uses.push_back(weights_.at(name));
    x = model_.forward[i](input, uses, x);
  }
  return x;
}

at::Tensor WholeModel::backward(const at::Tensor& tokens, const at::Tensor& targets) {
  for (auto& [name, fresh] : fresh_) *fresh = true;
  const at::Tensor loss = forward(tokens, targets);
  torch::autograd::backward({loss}, {});
  return loss.detach();
}

}  // namespace shale::test

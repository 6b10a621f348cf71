// A model with all its weights in memory, to run as one: what an engine does, without sharding.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model.h"

namespace shale::test {

class WholeModel {
 public:
  using Values = std::function<at::Tensor(const ParameterInfo&)>;  // a parameter's values, flat, any dtype

  // Weights of `dtype` from `values`; gradients too when `train`.
  WholeModel(const Architecture&, std::int64_t max_seq_len, at::ScalarType dtype, const Values& values,
             bool train = false);

  // Logits [B, T, V], or the loss when there are targets.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets = {});
  // Loss with the gradients of all weights, overwritten.
  at::Tensor backward(const at::Tensor& tokens, const at::Tensor& targets);

  std::map<std::string, Weight>& weights() { return weights_; }
  const Model& model() const { return model_; }

 private:
  Model model_;
  std::map<std::string, Weight> weights_;
  std::map<std::string, std::unique_ptr<bool>> fresh_;
  std::map<std::size_t, std::vector<Weight>> uses_;  // of each unit, in its order
};

}  // namespace shale::test

// Runs an operator of ours beside plain ATen autograd in float64 on the same numbers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/ops/ops.h"

namespace shale {

using Tensors = std::vector<at::Tensor>;

// A parameter with its gradient memory, as the engine would make it.
struct Parameter {
  Parameter(const at::Tensor& value, at::ScalarType grad_type, bool frozen = false) {
    weight.value = value.clone().set_requires_grad(!frozen);
    weight.frozen = frozen;
    weight.fresh = &fresh;
    // Rubbish of another tenant: the first writer must not read it.
    if (!frozen) weight.grad = at::zeros(value.sizes(), value.options().dtype(grad_type)).fill_(1e3);
  }
  Parameter(const Parameter&) = delete;

  bool fresh = true;
  Weight weight;
};

struct Case {
  Tensors inputs, weights;  // float64; converted to the type under test
  std::function<at::Tensor(const Tensors&, std::vector<Weight*>)> ours;
  std::function<at::Tensor(const Tensors&, const Tensors&)> plain;
};

inline at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

inline double tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-13 : type == at::kFloat ? 2e-6 : 2e-2; }

// The greatest difference, relative to the greatest value.
inline double difference(const at::Tensor& ours, const at::Tensor& plain) {
  if (plain.numel() == 0) return 0;
  const auto a = ours.detach().to(at::kDouble), b = plain.detach().to(at::kDouble);
  return (a - b).abs().max().item<double>() / (b.abs().max().item<double>() + 1e-30);
}

#define EXPECT_NEAR_TENSOR(ours, plain, limit)           \
  do {                                                   \
    ASSERT_TRUE((ours).defined()) << #ours;              \
    ASSERT_EQ((ours).sizes(), (plain).sizes()) << #ours; \
    EXPECT_LE(difference(ours, plain), limit) << #ours;  \
  } while (false)

inline Tensors leaves(const Tensors& from, at::ScalarType type, at::ScalarType as) {
  Tensors made;
  for (const auto& x : from) made.push_back(x.to(type).to(as).detach().clone().set_requires_grad(true));
  return made;
}

// Output and every gradient; the weights are used in two backward passes, so they overwrite and then add.
inline void compare(const Case& c, at::ScalarType type, at::ScalarType grad_type) {
  const auto limit = tolerance(type);
  const auto x = leaves(c.inputs, type, at::kDouble), w = leaves(c.weights, type, at::kDouble);
  const auto expected = c.plain(x, w);
  const auto dy = random(expected.sizes(), 99).to(type);
  torch::autograd::backward({expected}, {dy.to(at::kDouble)});

  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Weight*> weights;
  for (const auto& value : c.weights) {
    parameters.push_back(std::make_unique<Parameter>(value.to(type), grad_type));
    weights.push_back(&parameters.back()->weight);
  }
  for (int pass = 1; pass <= 2; ++pass) {
    const auto inputs = leaves(c.inputs, type, type);
    const auto y = c.ours(inputs, weights);
    EXPECT_NEAR_TENSOR(y, expected, limit);
    torch::autograd::backward({y}, {dy.to(y.scalar_type())});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].grad().scalar_type(), type);
      EXPECT_NEAR_TENSOR(inputs[i].grad(), x[i].grad(), 3 * limit);
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_FALSE(weights[i]->value.grad().defined());
      EXPECT_EQ(weights[i]->grad.scalar_type(), grad_type);
      EXPECT_NEAR_TENSOR(weights[i]->grad, w[i].grad() * pass, 3 * limit);
    }
  }
}

// All types, each with gradients of its own type and wider ones.
inline void compare(const Case& c) {
  for (const auto& [type, grad_type] :
       std::vector<std::pair<at::ScalarType, at::ScalarType>>{{at::kDouble, at::kDouble},
                                                              {at::kFloat, at::kFloat},
                                                              {at::kFloat, at::kDouble},
                                                              {at::kBFloat16, at::kBFloat16},
                                                              {at::kBFloat16, at::kFloat},
                                                              {at::kHalf, at::kFloat}}) {
    SCOPED_TRACE(testing::Message() << type << " with gradients in " << grad_type);
    compare(c, type, grad_type);
  }
}

// The gradient along a random direction against central differences, float64.
inline void check_by_differences(const Case& c) {
  auto x = leaves(c.inputs, at::kDouble, at::kDouble);
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Weight*> weights;
  for (const auto& value : c.weights) {
    parameters.push_back(std::make_unique<Parameter>(value, at::kDouble));
    weights.push_back(&parameters.back()->weight);
  }
  const auto y = c.ours(x, weights);
  const auto dy = random(y.sizes(), 5);
  torch::autograd::backward({y}, {dy});
  double along = 0;
  Tensors moved_x, moved_w;
  for (std::size_t i = 0; i < x.size(); ++i) {
    moved_x.push_back(random(x[i].sizes(), 50 + i));
    along += (moved_x[i] * x[i].grad()).sum().item<double>();
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    moved_w.push_back(random(weights[i]->value.sizes(), 70 + i));
    along += (moved_w[i] * weights[i]->grad).sum().item<double>();
  }
  const at::NoGradGuard no_grad;
  const auto value = [&](double h) {
    Tensors at_x;
    for (std::size_t i = 0; i < x.size(); ++i) at_x.push_back(x[i].detach() + moved_x[i] * h);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i]->value.copy_(c.weights[i] + moved_w[i] * h);
    return (c.ours(at_x, weights) * dy).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  const auto difference = (value(kStep) - value(-kStep)) / (2 * kStep);
  EXPECT_NEAR(along, difference, 1e-6 * (1 + std::abs(along)));
}

}  // namespace shale

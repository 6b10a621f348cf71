// Shapes: B sequences, T positions, D dim, H heads, K key-value heads, C channels of a head, V vocabulary.
#include "core/model/llama.h"

#include <ATen/ops/add.h>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace shale {
namespace {

// Places in the weights of a layer; biases follow in the order of their matrices.
enum LayerWeight { kInputNorm, kQuery, kKey, kValue, kOutput, kPostNorm, kGate, kUp, kDown, kFirstBias };

class Layer {
 public:
  Layer(const Architecture& a, std::shared_ptr<RopeTables> tables) : a_(a), tables_(std::move(tables)) {}

  at::Tensor operator()(const ModelInput&, std::span<Weight> weights, const at::Tensor& x_BTD) const {
    const at::Tensor h_BTD = at::add(x_BTD, attend(weights, rms_norm(x_BTD, weights[kInputNorm], a_.norm_eps)));
    return at::add(h_BTD, feed_forward(weights, rms_norm(h_BTD, weights[kPostNorm], a_.norm_eps)));
  }

 private:
  at::Tensor attend(std::span<Weight> weights, const at::Tensor& x_BTD) const {
    Weight* bias = a_.attention_bias ? &weights[kFirstBias] : nullptr;
    auto project = [&](LayerWeight which, std::int64_t heads) {
      return linear(x_BTD, weights[which], bias ? bias + (which - kQuery) : nullptr)
          .view({x_BTD.size(0), x_BTD.size(1), heads, a_.head_dim});
    };
    const at::Tensor cos_sin = tables_->get(x_BTD.size(1), x_BTD);
    const at::Tensor q_BTHC = rope(project(kQuery, a_.n_heads), cos_sin);
    const at::Tensor k_BTKC = rope(project(kKey, a_.n_kv_heads), cos_sin);
    const at::Tensor v_BTKC = project(kValue, a_.n_kv_heads);
    return linear(attention(q_BTHC, k_BTKC, v_BTKC), weights[kOutput], bias ? bias + 3 : nullptr);
  }

  at::Tensor feed_forward(std::span<Weight> weights, const at::Tensor& x_BTD) const {
    Weight* bias = a_.mlp_bias ? &weights[kFirstBias + (a_.attention_bias ? 4 : 0)] : nullptr;
    const at::Tensor gate = linear(x_BTD, weights[kGate], bias);
    const at::Tensor up = linear(x_BTD, weights[kUp], bias ? bias + 1 : nullptr);
    return linear(swiglu(gate, up), weights[kDown], bias ? bias + 2 : nullptr);
  }

  Architecture a_;
  std::shared_ptr<RopeTables> tables_;
};

at::Tensor embed(const ModelInput& input, std::span<Weight> weights, const at::Tensor&) {
  return embedding(input.tokens, weights[0]);
}

// The loss as a sum over targets, or logits [B, T, V] when there are none.
UnitForward make_head(double norm_eps) {
  return [norm_eps](const ModelInput& input, std::span<Weight> weights, const at::Tensor& x_BTD) {
    const at::Tensor logits_BTV = linear(rms_norm(x_BTD, weights[0], norm_eps), weights[1]);
    if (!input.targets.defined()) return logits_BTV;
    check(input.targets.sizes() == x_BTD.sizes().slice(0, 2), "head: targets ", input.targets.sizes(),
          " for activations ", x_BTD.sizes());
    return cross_entropy_sum(logits_BTV.view({-1, logits_BTV.size(2)}), input.targets.reshape({-1}));
  };
}

// Shapes of a unit's weights, own and borrowed. A tied head borrows the embedding.
std::vector<Shape> weight_shapes(const Architecture& a, const UnitInfo& unit) {
  std::vector<Shape> shapes;
  for (const auto& parameter : unit.parameters) shapes.push_back(parameter.shape);
  for (std::size_t i = 0; i < unit.borrows.size(); ++i) shapes.push_back({a.vocab_size, a.dim});
  return shapes;
}

// Wraps a unit so that whatever a caller confuses fails with the unit's name instead of inside an operator.
UnitForward checked(UnitForward forward, const Architecture& a, const UnitInfo& unit) {
  return [forward = std::move(forward), shapes = weight_shapes(a, unit), name = unit.name, dim = a.dim,
          first = unit.kind == UnitKind::embedding](const ModelInput& input, std::span<Weight> weights,
                                                    const at::Tensor& x) {
    check(weights.size() == shapes.size(), name, ": ", weights.size(), " weights, expected ", shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      check(weights[i].value.defined() && weights[i].value.sizes() == at::IntArrayRef(shapes[i]), name, ": weight ", i,
            " has shape ", weights[i].value.sizes(), ", expected ", at::IntArrayRef(shapes[i]));
    }
    if (first) {
      check(input.tokens.defined() && input.tokens.dim() == 2 && input.tokens.scalar_type() == at::kLong, name,
            ": tokens must be [B, T] int64");
    } else {
      check(x.defined() && x.dim() == 3 && x.size(2) == dim, name, ": activations must be [B, T, ", dim, "]");
    }
    return forward(input, weights, x);
  };
}

}  // namespace

UnitForward llama_forward(const Architecture& a, const UnitInfo& unit, std::shared_ptr<RopeTables> tables) {
  switch (unit.kind) {
    case UnitKind::embedding:
      return checked(embed, a, unit);
    case UnitKind::layer:
      return checked(Layer(a, std::move(tables)), a, unit);
    case UnitKind::head:
      return checked(make_head(a.norm_eps), a, unit);
  }
  fail(Code::internal, "unit ", unit.name, " is of no known kind");
}

}  // namespace shale

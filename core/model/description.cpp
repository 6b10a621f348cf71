#include "core/model/description.h"

#include <numeric>

#include "core/base/error.h"
#include "core/model/architecture.h"

namespace shale {
namespace {

// Whether `text` fits `pattern`, in which "*" stands for any text.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

UnitInfo embedding_unit(const Architecture& a) {
  return {"embedding", UnitKind::embedding, {{"model.embed_tokens.weight", {a.vocab_size, a.dim}, kEmbedding}}, {}};
}

UnitInfo layer_unit(const Architecture& a, std::int64_t index) {
  const std::string prefix = str("model.layers.", index, ".");
  const std::int64_t q = a.n_heads * a.head_dim, kv = a.n_kv_heads * a.head_dim;
  UnitInfo unit{str("layers.", index), UnitKind::layer, {}, {}};
  auto add = [&](const char* name, Shape shape, ParameterRole role) {
    unit.parameters.push_back({prefix + name, std::move(shape), role});
  };
  add("input_layernorm.weight", {a.dim}, kNorm);
  add("self_attn.q_proj.weight", {q, a.dim}, kLinear);
  add("self_attn.k_proj.weight", {kv, a.dim}, kLinear);
  add("self_attn.v_proj.weight", {kv, a.dim}, kLinear);
  add("self_attn.o_proj.weight", {a.dim, q}, kLinear);
  add("post_attention_layernorm.weight", {a.dim}, kNorm);
  add("mlp.gate_proj.weight", {a.ffn_dim, a.dim}, kLinear);
  add("mlp.up_proj.weight", {a.ffn_dim, a.dim}, kLinear);
  add("mlp.down_proj.weight", {a.dim, a.ffn_dim}, kLinear);
  if (a.attention_bias) {
    add("self_attn.q_proj.bias", {q}, kBias);
    add("self_attn.k_proj.bias", {kv}, kBias);
    add("self_attn.v_proj.bias", {kv}, kBias);
    add("self_attn.o_proj.bias", {a.dim}, kBias);
  }
  if (a.mlp_bias) {
    add("mlp.gate_proj.bias", {a.ffn_dim}, kBias);
    add("mlp.up_proj.bias", {a.ffn_dim}, kBias);
    add("mlp.down_proj.bias", {a.dim}, kBias);
  }
  return unit;
}

UnitInfo head_unit(const Architecture& a) {
  UnitInfo unit{"head", UnitKind::head, {{"model.norm.weight", {a.dim}, kNorm}}, {}};
  if (a.tied) {
    unit.borrows = {"model.embed_tokens.weight"};
  } else {
    unit.parameters.push_back({"lm_head.weight", {a.vocab_size, a.dim}, kHead | kLinear});
  }
  return unit;
}

[[noreturn]] void fail_no_match(const ModelInfo& info, const std::string& pattern) {
  std::vector<std::string> candidates;  // names, and what a name ends in at each dot
  for (const auto& unit : info.units) {
    for (const auto& parameter : unit.parameters) {
      for (auto end = parameter.name.size(); end != std::string::npos; end = parameter.name.rfind('.', end - 1)) {
        candidates.push_back(parameter.name.substr(0, end));
      }
    }
  }
  std::string plain = pattern;
  std::erase(plain, '*');
  if (plain.ends_with('.')) plain.pop_back();
  const std::string near = nearest(plain, candidates);
  fail(Code::config, "frozen pattern \"", pattern, "\" matches no parameter of the model; ",
       near.empty() ? str("parameters are named like \"", info.units[1].parameters[1].name, "\"")
                    : str("did you mean \"", near, "\"?"));
}

void freeze(ModelInfo& info, const std::string& pattern) {
  bool found = false;
  for (auto& unit : info.units) {
    for (auto& parameter : unit.parameters) {
      if (!matches(pattern, parameter.name)) continue;
      parameter.frozen = found = true;
    }
  }
  if (!found) fail_no_match(info, pattern);
}

}  // namespace

std::int64_t numel(const Shape& shape) {
  std::int64_t n = 1;
  for (const auto size : shape) n *= size;
  return n;
}

std::int64_t ModelInfo::numel() const {
  std::int64_t n = 0;
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters) n += shale::numel(parameter.shape);
  }
  return n;
}

std::vector<int> ModelInfo::run_order() const {
  std::vector<int> all = order;
  if (all.empty()) {
    all.resize(units.size());
    std::iota(all.begin(), all.end(), 0);
  }
  return all;
}

ModelInfo describe(const Architecture& a, std::span<const std::string> frozen) {
  ModelInfo info;
  info.units.push_back(embedding_unit(a));
  for (std::int64_t i = 0; i < a.n_layers; ++i) info.units.push_back(layer_unit(a, i));
  info.units.push_back(head_unit(a));
  for (const auto& pattern : frozen) freeze(info, pattern);
  return info;
}

}  // namespace shale

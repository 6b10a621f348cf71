#include <algorithm>

#include "core/base/error.h"
#include "core/model/architecture.h"

namespace shale {
namespace {

// dim, layers, heads, key-value heads, ffn, vocabulary: what all flavors state.
struct Sizes {
  std::int64_t dim, n_layers, n_heads, n_kv_heads, ffn_dim, vocab_size;
};

Architecture sized(const char* name, const Sizes& s, std::int64_t max_positions) {
  Architecture a;
  a.name = name;
  a.dim = s.dim, a.n_layers = s.n_layers, a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads;
  a.ffn_dim = s.ffn_dim, a.vocab_size = s.vocab_size;
  a.head_dim = s.dim / s.n_heads;
  a.max_positions = max_positions;
  return a;
}

Architecture llama3(const char* name, const Sizes& s) {
  Architecture a = sized(name, s, 8192);
  a.rope_theta = 500000;
  return a;
}

Architecture llama32_1b() {
  Architecture a = llama3("llama3.2-1b", {2048, 16, 32, 8, 8192, 128256});
  a.max_positions = 131072;
  a.rope_scaling = RopeScaling{32, 1, 4, 8192};
  a.tied = true;
  return a;
}

Architecture smollm2_135m() {
  Architecture a = sized("smollm2-135m", {576, 30, 9, 3, 1536, 49152}, 8192);
  a.rope_theta = 100000;
  a.init_std = 1.0 / 24;  // 1 / sqrt(dim), as published
  a.tied = true;
  return a;
}

// The shapes of the Llama and SmolLM2 models as published in their config.json files; debugmodel, tiny and small are
// ours. The first three train on bytes or on small vocabularies in seconds on a CPU.
std::vector<Architecture> flavors() {
  return {
      sized("debugmodel", {256, 4, 4, 2, 688, 256}, 2048),
      sized("tiny", {256, 4, 4, 2, 688, 256}, 2048),
      sized("small", {768, 12, 12, 4, 2048, 32000}, 2048),
      smollm2_135m(),
      sized("llama2-7b", {4096, 32, 32, 32, 11008, 32000}, 4096),
      sized("llama2-13b", {5120, 40, 40, 40, 13824, 32000}, 4096),
      sized("llama2-70b", {8192, 80, 64, 8, 28672, 32000}, 4096),
      llama3("llama3-8b", {4096, 32, 32, 8, 14336, 128256}),
      llama3("llama3-70b", {8192, 80, 64, 8, 28672, 128256}),
      llama32_1b(),
  };
}

}  // namespace

std::vector<std::string> flavor_names() {
  std::vector<std::string> names;
  for (const auto& a : flavors()) names.push_back(a.name);
  return names;
}

Architecture flavor(const std::string& name) {
  for (auto& a : flavors()) {
    if (a.name == name) return a;
  }
  const auto names = flavor_names();
  const std::string near = nearest(name, names);
  if (!near.empty()) fail(Code::config, "[model] flavor \"", name, "\" is not known; did you mean \"", near, "\"?");
  fail(Code::config, "[model] flavor \"", name, "\" is not known; there are ", join(names, ", "));
}

}  // namespace shale

// The numbers that describe a Llama-type decoder, from a named flavor or a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shale {

// Llama-3 stretching of rotary frequencies ("rope_type": "llama3" of config.json).
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
};

struct Architecture {
  std::string name;  // flavor, or the folder it came from
  std::int64_t vocab_size = 256, dim = 256, n_layers = 4, n_heads = 4, n_kv_heads = 2, ffn_dim = 688;
  std::int64_t head_dim = 64;             // usually dim / n_heads
  std::int64_t max_positions = 2048;      // positions the model was made for
  double norm_eps = 1e-5, rope_theta = 10000, init_std = 0.02;
  std::optional<RopeScaling> rope_scaling;
  bool tied = false;            // the head uses the embedding's weight
  bool attention_bias = false;  // biases on q, k, v, o projections
  bool mlp_bias = false;        // biases on gate, up, down projections
};

std::vector<std::string> flavor_names();
Architecture flavor(const std::string& name);               // Error{config} with the nearest name
Architecture read_architecture(const std::string& folder);  // <folder>/config.json; Error{input} naming file and key
// The same from its text; where: what to call it in errors.
Architecture parse_architecture(const std::string& text, const std::string& where);

// The same in config.json spelling, as transformers 4 and 5 read it. What an Architecture does not hold (token ids,
// dtype) is for the writer of a folder to add.
std::string config_json(const Architecture&);

}  // namespace shale

#include "core/model/architecture.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/input_file.h"
#include "core/model/strict_json.h"

namespace shale {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxSize = 1 << 24;   // of one dimension of a matrix
constexpr std::int64_t kMaxLayers = 10'000;  // far above any model; a damaged number must not fill the memory
constexpr std::int64_t kMaxPositions = 1 << 30;

// One JSON object of a config.json. Reading a key that is absent or null gives the default that transformers has.
class Keys {
 public:
  Keys(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  bool is_null(const char* key) const { return object_.contains(key) && !find(key); }

  template <class... Parts>
  [[noreturn]] void refuse(const char* key, const Parts&... parts) const {
    const json* value = find(key);
    fail(Code::input, where_, ": ", key, value ? " is " + shown(*value) : " is missing", parts...);
  }

  std::int64_t count(const char* key, std::int64_t fallback, std::int64_t most) const {
    const json* value = find(key);
    if (!value) return fallback;
    const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= 1 &&
                      value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!fits) refuse(key, "; expected a whole number from 1 to ", most);
    return value->get<std::int64_t>();
  }

  double number(const char* key, double fallback, double least, double most) const {
    const json* value = find(key);
    if (!value) return fallback;
    const double got = value->is_number() ? value->get<double>() : std::nan("");
    if (!(got >= least && got <= most)) refuse(key, "; expected a number from ", least, " to ", most);
    return got;
  }

  bool flag(const char* key, bool fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    if (!value->is_boolean()) refuse(key, "; expected true or false");
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    if (!value->is_string()) refuse(key, "; expected text");
    return value->get<std::string>();
  }

  Keys inside(const char* key) const {
    if (!find(key)->is_object()) refuse(key, "; expected an object");
    return {*find(key), where_ + ": " + key};
  }

  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
};

// A value that may stand in several places: they must agree.
template <class T>
class Agreed {
 public:
  void take(const T& value, const std::string& where) {
    if (value_ && *value_ != value) {
      fail(Code::input, where, " is ", value, " but ", where_, " is ", *value_, "; remove the wrong one");
    }
    value_ = value, where_ = where;
  }
  T or_else(const T& fallback) const { return value_.value_or(fallback); }

 private:
  std::optional<T> value_;
  std::string where_;
};

// What a rope_scaling or rope_parameters object says.
struct RopeBlock {
  std::string where, type = "default";
  std::optional<RopeScaling> scaling;
};

RopeScaling read_scaling(const Keys& keys, std::int64_t max_positions) {
  constexpr double kMost = 1e9;
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!keys.find(key)) keys.refuse(key, "; rope_type \"llama3\" needs it");
  }
  RopeScaling scaling;
  scaling.factor = keys.number("factor", 0, 1, kMost);
  scaling.low_freq_factor = keys.number("low_freq_factor", 0, 1e-9, kMost);
  scaling.high_freq_factor = keys.number("high_freq_factor", 0, 1e-9, kMost);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    keys.refuse("high_freq_factor", "; it must be above low_freq_factor, ", scaling.low_freq_factor);
  }
  scaling.original_max_position_embeddings =
      keys.count("original_max_position_embeddings", max_positions, kMaxPositions);
  return scaling;
}

RopeBlock read_rope_block(const Keys& keys, std::int64_t max_positions, Agreed<double>& theta) {
  RopeBlock block{keys.where(), "default", {}};
  Agreed<std::string> type;
  for (const char* key : {"type", "rope_type"}) {  // "type" is the older spelling
    if (keys.find(key)) type.take(keys.text(key, ""), keys.where() + ": " + key);
  }
  block.type = type.or_else("default");
  if (keys.find("rope_theta")) theta.take(keys.number("rope_theta", 0, 1, 1e18), keys.where() + ": rope_theta");
  if (keys.number("partial_rotary_factor", 1, 0, 1) != 1) {
    keys.refuse("partial_rotary_factor", "; shale rotates whole heads only");
  }
  if (block.type == "llama3") {
    block.scaling = read_scaling(keys, max_positions);
  } else if (block.type != "default") {
    fail(Code::input, keys.where(), ": rope_type \"", block.type,
         "\" is not supported; shale knows \"default\" and \"llama3\"");
  }
  return block;
}

bool same(const std::optional<RopeScaling>& a, const std::optional<RopeScaling>& b) {
  if (!a || !b) return !a && !b;
  return a->factor == b->factor && a->low_freq_factor == b->low_freq_factor &&
         a->high_freq_factor == b->high_freq_factor &&
         a->original_max_position_embeddings == b->original_max_position_embeddings;
}

// transformers 4 has rope_theta beside an optional rope_scaling, transformers 5 has both in rope_parameters.
void read_rope(const Keys& keys, Architecture& a) {
  Agreed<double> theta;
  if (keys.find("rope_theta")) theta.take(keys.number("rope_theta", 0, 1, 1e18), keys.where() + ": rope_theta");
  if (keys.number("partial_rotary_factor", 1, 0, 1) != 1) {
    keys.refuse("partial_rotary_factor", "; shale rotates whole heads only");
  }
  const auto original = keys.count("original_max_position_embeddings", a.max_positions, kMaxPositions);
  std::optional<RopeBlock> first;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.find(key) || keys.find(key)->empty()) continue;
    const RopeBlock block = read_rope_block(keys.inside(key), original, theta);
    if (first && !same(first->scaling, block.scaling)) {
      fail(Code::input, first->where, " and ", block.where, " describe different scalings; remove the wrong one");
    }
    a.rope_scaling = block.scaling;
    first = block;
  }
  a.rope_theta = theta.or_else(10000);
}

struct Family {  // what differs between the model types
  const char* model_type;
  const char* architecture;
  std::int64_t ffn_dim, n_kv_heads, max_positions;  // defaults of transformers; n_kv_heads 0: as many as heads
  std::int64_t sliding_window;                      // default; 0: has none
};

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", 11008, 0, 2048, 0},
    {"mistral", "MistralForCausalLM", 14336, 8, 131072, 4096},
};

const Family& read_family(const Keys& keys) {
  const std::string type = keys.text("model_type", "");
  for (const Family& family : kFamilies) {
    if (type != family.model_type) continue;
    const json* names = keys.find("architectures");
    if (!names) return family;
    if (!names->is_array()) keys.refuse("architectures", "; expected a list");
    for (const auto& name : *names) {
      if (name == family.architecture) return family;
    }
    keys.refuse("architectures", "; expected \"", family.architecture, "\" for model_type \"", type, "\"");
  }
  keys.refuse("model_type", "; shale runs \"llama\", and \"mistral\" without a sliding window");
}

// What changes the numbers of a model and is not built here must not be passed over in silence.
void refuse_unsupported(const Keys& keys, const Family& family, const Architecture& a) {
  const std::string act = keys.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") keys.refuse("hidden_act", "; shale runs \"silu\" only");
  if (keys.number("attention_dropout", 0, 0, 1) != 0) {
    keys.refuse("attention_dropout", "; shale trains without dropout, set it to 0");
  }
  if (keys.find("quantization_config")) {
    keys.refuse("quantization_config", "; shale needs weights that are not quantized");
  }
  if (family.sliding_window == 0) return;
  // An explicit null switches the window off; an absent key means the default of the family.
  if (keys.is_null("sliding_window")) return;
  const auto window = keys.count("sliding_window", family.sliding_window, kMaxPositions);
  if (window < a.max_positions) {
    fail(Code::input, keys.where(), ": sliding_window is ", window, ", less than max_position_embeddings ",
         a.max_positions, "; shale attends to all earlier positions: set it to null if the model was made so");
  }
}

// The dtype of the stored tensors. The weights files say it themselves and the run's TOML decides about masters and
// compute, so it is only checked for a contradiction.
void check_dtype(const Keys& keys) {
  Agreed<std::string> dtype;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!keys.find(key)) continue;
    std::string name = keys.text(key, "");
    if (name.starts_with("torch.")) name.erase(0, 6);
    dtype.take(name, keys.where() + ": " + key);
  }
}

void read_heads(const Keys& keys, const Family& family, Architecture& a) {
  a.n_heads = keys.count("num_attention_heads", 32, kMaxSize);
  a.n_kv_heads = keys.count("num_key_value_heads", family.n_kv_heads, kMaxSize);
  if (a.n_kv_heads == 0) a.n_kv_heads = a.n_heads;
  if (a.n_heads % a.n_kv_heads != 0) {
    fail(Code::input, keys.where(), ": num_attention_heads ", a.n_heads, " is not a multiple of num_key_value_heads ",
         a.n_kv_heads);
  }
  if (!keys.find("head_dim") && a.dim % a.n_heads != 0) {
    fail(Code::input, keys.where(), ": hidden_size ", a.dim, " is not a multiple of num_attention_heads ", a.n_heads,
         ", and there is no head_dim");
  }
  a.head_dim = keys.count("head_dim", std::max<std::int64_t>(a.dim / a.n_heads, 1), kMaxSize);
  if (a.head_dim % 2 != 0) {
    fail(Code::input, keys.where(), ": head_dim is ", a.head_dim, "; rotary embeddings need an even number");
  }
}

Architecture read_keys(const Keys& keys) {
  const Family& family = read_family(keys);
  Architecture a;
  a.vocab_size = keys.count("vocab_size", 32000, std::numeric_limits<std::int32_t>::max());
  a.dim = keys.count("hidden_size", 4096, kMaxSize);
  a.ffn_dim = keys.count("intermediate_size", family.ffn_dim, kMaxSize);
  a.n_layers = keys.count("num_hidden_layers", 32, kMaxLayers);
  read_heads(keys, family, a);
  a.max_positions = keys.count("max_position_embeddings", family.max_positions, kMaxPositions);
  a.norm_eps = keys.number("rms_norm_eps", 1e-6, 0, 1);
  a.init_std = keys.number("initializer_range", 0.02, 0, 1);
  a.tied = keys.flag("tie_word_embeddings", false);
  if (&family == &kFamilies[0]) {  // Mistral has no biases, whatever its config.json says
    a.attention_bias = keys.flag("attention_bias", false);
    a.mlp_bias = keys.flag("mlp_bias", false);
  }
  read_rope(keys, a);
  refuse_unsupported(keys, family, a);
  check_dtype(keys);
  return a;
}

}  // namespace

Architecture read_architecture(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Architecture a = parse_architecture(InputFile(path).text(kMaxConfigBytes), path);
  a.name = folder;
  return a;
}

Architecture parse_architecture(const std::string& text, const std::string& where) {
  const json all = parse_strict(text, where);
  if (!all.is_object()) fail(Code::input, where, ": expected a JSON object, found ", shown(all));
  return read_keys(Keys(all, where));
}

// transformers 5 still reads the spelling of version 4, older programs read no other.
std::string config_json(const Architecture& a) {
  nlohmann::ordered_json out{
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"vocab_size", a.vocab_size},
      {"hidden_size", a.dim},
      {"intermediate_size", a.ffn_dim},
      {"num_hidden_layers", a.n_layers},
      {"num_attention_heads", a.n_heads},
      {"num_key_value_heads", a.n_kv_heads},
      {"head_dim", a.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", a.max_positions},
      {"initializer_range", a.init_std},
      {"rms_norm_eps", a.norm_eps},
      {"rope_theta", a.rope_theta},
      {"rope_scaling", nullptr},
      {"attention_bias", a.attention_bias},
      {"mlp_bias", a.mlp_bias},
      {"tie_word_embeddings", a.tied},
  };
  if (const auto& s = a.rope_scaling) {
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", s->factor},
                           {"low_freq_factor", s->low_freq_factor},
                           {"high_freq_factor", s->high_freq_factor},
                           {"original_max_position_embeddings", s->original_max_position_embeddings}};
  }
  return out.dump(2) + "\n";
}

}  // namespace shale

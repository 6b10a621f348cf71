// The configuration of a run as typed values, resolved from defaults < file < SHALE_ environment < command line, with
// the origin of each. Section and key names follow torchtitan 0.2.2's TOML where it has the thing. One table in
// schema.cpp holds every key with type, default, range, unit and help.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/config/environment.h"

namespace shale {

// Where a value was written, for messages: "run.toml:12:9", "--training.steps", "SHALE_TRAINING_STEPS", "default".
struct Origin {
  std::string text = "default";
};

// An option of a plugin as the user wrote it; the loader checks it against the plugin's own table.
using RawValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
struct RawOption {
  std::string key;
  RawValue value;
  Origin key_origin, value_origin;
};

struct PluginChoice {  // [sharding] plugin = "...", [sharding.options]
  std::string kind;    // "sharding", "precision", "offload", "checkpoint"
  std::string plugin;  // a name, or an absolute path (relative ones are resolved against the file)
  Origin origin;
  std::vector<RawOption> options;
};

struct Config {
  std::string file;  // as given
  std::string text;  // the resolved file as TOML; equal text = equal run
  std::string hash;  // of text, without keys that may differ between ranks (none today)

  struct Job {
    std::string dump_folder = "outputs", description;
    bool overwrite = false;
  } job;
  struct ModelSection {
    std::string name = "llama3", flavor = "debugmodel", hf_assets_path;  // hf_assets_path: folder with config.json
    std::vector<std::string> frozen;                                     // patterns of parameter names
  } model;
  struct Optimizer {
    std::string name = "AdamW";
    double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    bool decay_norms = true;  // false: no weight decay for norms and biases
  } optimizer;
  struct Scheduler {
    std::int64_t warmup_steps = 200, total_steps = 0;  // total_steps 0 = training.steps
    double decay_ratio = -1, min_lr_factor = 0;        // decay_ratio -1 = everything after the warm-up
    std::string decay_type = "linear";                 // linear | cosine | sqrt
  } lr_scheduler;
  struct Training {
    std::string dataset = "text", dataset_path;  // dataset: text | nanogpt | llmc | auto
    std::int64_t local_batch_size = 8, global_batch_size = -1, seq_len = 2048, steps = 10000, epochs = 0;
    double max_norm = 1.0;
    bool shuffle = true;
    std::string device = "cpu";       // cpu | cuda
    std::int64_t threads = 0;         // per rank; 0 = cores / local ranks
    std::string nan_policy = "stop";  // stop | skip
  } training;
  struct Validation {
    bool enable = false;
    std::string dataset_path;
    std::int64_t freq = 10, steps = 10, local_batch_size = 0;  // 0 = training's
  } validation;
  struct Checkpoint {
    bool enable = false;
    std::string folder = "checkpoints", initial_load_path;
    bool initial_load_model_only = true;
    std::int64_t interval = 500, keep_latest_k = 10;
    std::string resume = "none";  // none | auto | a snapshot folder
    std::string async_mode = "disabled", while_saving = "wait";  // disabled | async; wait | skip
    double timeout_seconds = 1800;
  } checkpoint;
  struct Comm {
    double init_timeout_seconds = 300, train_timeout_seconds = 100;
  } comm;
  struct Metrics {
    std::int64_t log_freq = 10;
  } metrics;
  struct Debug {
    std::int64_t seed = 0;
  } debug;
  std::string activation_checkpoint = "none";  // [activation_checkpoint] mode = none | full

  PluginChoice sharding{"sharding", "full_shard", {}, {}}, precision{"precision", "uniform", {}, {}},
      offload{"offload", "none", {}, {}}, format{"checkpoint", "sharded", {}, {}};
  std::vector<std::string> plugin_path;  // SHALE_PLUGIN_PATH, in order
  std::string scratch_dir;               // TMPDIR or /tmp

  // Where a key was written: origin("training.steps").
  Origin origin(const std::string& key) const;
  std::vector<std::pair<std::string, Origin>> origins;
};

// A list of everything wrong with a configuration, each a line "file:line:col: text".
class ConfigErrors {
 public:
  void add(const Origin&, const std::string& text);
  bool empty() const { return lines_.empty(); }
  // Throws Error{config} with all lines, sorted as found.
  void raise() const;

 private:
  std::vector<std::string> lines_;
};

struct Override {  // --section.key=value
  std::string key, value;
};

// Reads, merges and checks a file. All that is wrong with it is in one Error{config}. world: ranks of the run, 0 =
// not known (then what depends on it is not checked).
Config read_config(const std::string& file, const std::vector<Override>&, int world);
Config read_config(const std::string& file, const std::vector<Override>&, int world, const Environment&);

// Micro-steps of one step: global_batch_size / (local_batch_size x world), 1 when no global size is asked for.
std::int64_t micro_steps(const Config&, int world);

// SHALE_PLUGIN_PATH, for commands that have no configuration.
std::vector<std::string> read_plugin_path();
std::vector<std::string> read_plugin_path(const Environment&);

std::string print_config(const Config&);  // the resolved file with the origin of each value as a comment
std::string config_help();                // every key with type, default, range, unit and help

}  // namespace shale

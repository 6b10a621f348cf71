#include "core/config/schema.h"

#include <algorithm>
#include <array>

namespace shale {
namespace {

#define SHALE_SLOT(member) [](Config& c) -> Slot { return &c.member; }

constexpr Limits kAny{};
constexpr Limits kPositive{.least = 1, .most = 1e12};
constexpr Limits kCount{.least = 0, .most = 1e12};
constexpr Limits kSmall{.least = 1, .most = 1e6};
constexpr Limits kNotNegative{.least = 0};
constexpr Limits kAboveZero{.least = 0, .open = true};
constexpr Limits kBeta{.least = 0, .most = 0.99999999};
constexpr Limits kFraction{.least = 0, .most = 1};
constexpr Limits kSeconds{.least = 0.001, .most = 1e6};

constexpr Key kKeys[] = {
    {"job", "dump_folder", SHALE_SLOT(job.dump_folder), "", "", kAny,
     "folder of the run: resolved config, metrics, snapshots; relative to the working directory"},
    {"job", "description", SHALE_SLOT(job.description), "", "", kAny, "free text, kept with the run"},
    {"job", "overwrite", SHALE_SLOT(job.overwrite), "", "", kAny, "replace what an earlier run left in dump_folder"},

    {"model", "name", SHALE_SLOT(model.name), "", "llama3", kAny, "family of the model"},
    {"model", "flavor", SHALE_SLOT(model.flavor), "", "", kAny, "named size, unless hf_assets_path is given"},
    {"model", "hf_assets_path", SHALE_SLOT(model.hf_assets_path), "", "", kAny,
     "Hugging Face folder: config.json describes the model, its weights are the first if it has any"},
    {"model", "frozen", SHALE_SLOT(model.frozen), "", "", kAny,
     "patterns of parameter names that do not train; * matches anything"},

    {"optimizer", "name", SHALE_SLOT(optimizer.name), "", "AdamW", kAny, "update rule"},
    {"optimizer", "lr", SHALE_SLOT(optimizer.lr), "", "", kNotNegative, "peak learning rate"},
    {"optimizer", "beta1", SHALE_SLOT(optimizer.beta1), "", "", kBeta, "decay of the first moment"},
    {"optimizer", "beta2", SHALE_SLOT(optimizer.beta2), "", "", kBeta, "decay of the second moment"},
    {"optimizer", "eps", SHALE_SLOT(optimizer.eps), "", "", kAboveZero, "added to the root of the second moment"},
    {"optimizer", "weight_decay", SHALE_SLOT(optimizer.weight_decay), "", "", kNotNegative, "decoupled weight decay"},
    {"optimizer", "decay_norms", SHALE_SLOT(optimizer.decay_norms), "", "", kAny,
     "false: no weight decay for norms and biases"},

    {"lr_scheduler", "warmup_steps", SHALE_SLOT(lr_scheduler.warmup_steps), "steps", "", kCount,
     "linear warm-up; left out and longer than the run, it is a tenth of the run"},
    {"lr_scheduler", "total_steps", SHALE_SLOT(lr_scheduler.total_steps), "steps", "", kCount,
     "length of the schedule; 0 = training.steps"},
    {"lr_scheduler",
     "decay_ratio",
     SHALE_SLOT(lr_scheduler.decay_ratio),
     "fraction of the schedule",
     "",
     {.least = 0, .most = 1, .or_value = -1},
     "decay at the end; -1 = everything after the warm-up"},
    {"lr_scheduler", "decay_type", SHALE_SLOT(lr_scheduler.decay_type), "", "linear|cosine|sqrt", kAny,
     "shape of the decay"},
    {"lr_scheduler", "min_lr_factor", SHALE_SLOT(lr_scheduler.min_lr_factor), "fraction of lr", "", kFraction,
     "where the decay ends"},

    {"training", "dataset", SHALE_SLOT(training.dataset), "", "text|nanogpt|llmc|auto", kAny,
     "format of dataset_path: text is one token per byte"},
    {"training", "dataset_path", SHALE_SLOT(training.dataset_path), "", "", kAny,
     "file, folder or pattern; relative to the working directory"},
    {"training", "local_batch_size", SHALE_SLOT(training.local_batch_size), "sequences", "", kSmall,
     "per rank and micro-step"},
    {"training",
     "global_batch_size",
     SHALE_SLOT(training.global_batch_size),
     "sequences",
     "",
     {.least = 1, .most = 1e12, .or_value = -1},
     "per step over all ranks, a multiple of local_batch_size x ranks; -1 = exactly that"},
    {"training",
     "seq_len",
     SHALE_SLOT(training.seq_len),
     "tokens",
     "",
     {.least = 1, .most = 1e8},
     "length of a sequence"},
    {"training", "steps", SHALE_SLOT(training.steps), "steps", "", kPositive, "length of the run"},
    {"training", "epochs", SHALE_SLOT(training.epochs), "passes over the data", "", kCount,
     "length of the run instead of steps; 0 = steps says"},
    {"training", "max_norm", SHALE_SLOT(training.max_norm), "", "", kNotNegative,
     "gradients are clipped to this norm; 0 = not at all"},
    {"training", "shuffle", SHALE_SLOT(training.shuffle), "", "", kAny, "a new order of the sequences in each epoch"},
    {"training", "device", SHALE_SLOT(training.device), "", "cpu|cuda", kAny, "where to compute"},
    {"training",
     "threads",
     SHALE_SLOT(training.threads),
     "threads per rank",
     "",
     {.least = 0, .most = 4096},
     "0 = cores / ranks of this host"},
    {"training", "nan_policy", SHALE_SLOT(training.nan_policy), "", "stop|skip", kAny,
     "what a step does whose loss or gradients are not finite"},

    {"validation", "enable", SHALE_SLOT(validation.enable), "", "", kAny, "measure the loss on other data"},
    {"validation", "dataset_path", SHALE_SLOT(validation.dataset_path), "", "", kAny,
     "as training.dataset_path, in the same format"},
    {"validation", "freq", SHALE_SLOT(validation.freq), "steps", "", kPositive, "between two validations"},
    {"validation", "steps", SHALE_SLOT(validation.steps), "global batches", "", kPositive,
     "per validation; as many sequences each as a training step has"},
    {"validation",
     "local_batch_size",
     SHALE_SLOT(validation.local_batch_size),
     "sequences",
     "",
     {.least = 0, .most = 1e6},
     "per rank, to take less memory; 0 = training.local_batch_size"},

    {"checkpoint", "enable", SHALE_SLOT(checkpoint.enable), "", "", kAny, "write snapshots"},
    {"checkpoint", "folder", SHALE_SLOT(checkpoint.folder), "", "", kAny, "of the snapshots, in job.dump_folder"},
    {"checkpoint", "initial_load_path", SHALE_SLOT(checkpoint.initial_load_path), "", "", kAny,
     "snapshot or Hugging Face folder to start from"},
    {"checkpoint", "initial_load_model_only", SHALE_SLOT(checkpoint.initial_load_model_only), "", "", kAny,
     "take the weights only, not optimizer, schedule and data position"},
    {"checkpoint", "interval", SHALE_SLOT(checkpoint.interval), "steps", "", kPositive, "between two snapshots"},
    {"checkpoint", "keep_latest_k", SHALE_SLOT(checkpoint.keep_latest_k), "snapshots", "", kCount, "0 = all"},
    {"checkpoint", "resume", SHALE_SLOT(checkpoint.resume), "", "", kAny,
     "none, auto (the latest snapshot of this run, if any) or a snapshot folder"},
    {"checkpoint", "async_mode", SHALE_SLOT(checkpoint.async_mode), "", "disabled|async", kAny,
     "async: steps go on while a copy of the state is written"},
    {"checkpoint", "while_saving", SHALE_SLOT(checkpoint.while_saving), "", "wait|skip", kAny,
     "what a snapshot does that is due while the one before is being written in the background"},
    {"checkpoint", "timeout_seconds", SHALE_SLOT(checkpoint.timeout_seconds), "seconds", "", kSeconds,
     "longest that ranks wait for the slowest writer"},
    {"checkpoint", "plugin", SHALE_SLOT(format.plugin), "", "", kAny, "layout of the snapshots in files"},

    {"activation_checkpoint", "mode", SHALE_SLOT(activation_checkpoint), "", "none|full", kAny,
     "full: keep the input of each layer only and recompute it in backward"},

    {"comm", "init_timeout_seconds", SHALE_SLOT(comm.init_timeout_seconds), "seconds", "", kSeconds,
     "until all ranks have joined"},
    {"comm", "train_timeout_seconds", SHALE_SLOT(comm.train_timeout_seconds), "seconds", "", kSeconds,
     "for any later wait for another rank"},

    {"metrics", "log_freq", SHALE_SLOT(metrics.log_freq), "steps", "", kPositive, "between two lines"},

    {"debug", "seed", SHALE_SLOT(debug.seed), "", "", {.least = 0, .most = 9e15}, "of initial weights and data order"},

    {"sharding", "plugin", SHALE_SLOT(sharding.plugin), "", "", kAny, "who owns which part of the parameters"},
    {"precision", "plugin", SHALE_SLOT(precision.plugin), "", "", kAny, "number formats"},
    {"offload", "plugin", SHALE_SLOT(offload.plugin), "", "", kAny, "where state lives between uses"},
};

#undef SHALE_SLOT

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key* find_key(std::string_view section, std::string_view name) {
  const auto found = std::ranges::find_if(kKeys, [&](const Key& k) { return k.section == section && k.name == name; });
  return found == std::end(kKeys) ? nullptr : found;
}

std::vector<std::string> sections() {
  std::vector<std::string> out;
  for (const Key& key : kKeys) {
    if (out.empty() || out.back() != key.section) out.emplace_back(key.section);
  }
  return out;
}

std::vector<std::string> names_of_section(std::string_view section) {
  std::vector<std::string> out;
  for (const Key& key : kKeys) {
    if (key.section == section) out.emplace_back(key.name);
  }
  return out;
}

bool is_plugin_section(std::string_view section) { return find_key(section, "plugin") != nullptr; }

PluginChoice& plugin_choice(Config& config, std::string_view section) {
  for (PluginChoice* choice : {&config.sharding, &config.precision, &config.offload, &config.format}) {
    if (choice->kind == section) return *choice;
  }
  fail(Code::internal, "[", section, "] names no kind of plugin");
}

std::string variable_of(std::string_view path) {
  std::string out = "SHALE_";
  for (const char c : path) out += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

std::string type_name(const Key& key) {
  static constexpr std::array<const char*, 5> kTypes{"true or false", "an integer", "a number", "a string",
                                                     "a list of strings"};
  Config unused;
  return kTypes.at(key.slot(unused).index());
}

}  // namespace shale

#include <algorithm>
#include <cmath>

#include "core/config/settings.h"

namespace shale {
namespace {

struct Checked {
  Config& config;
  const std::vector<std::string>& doubtful;
  ConfigErrors& errors;

  bool sure_of(const std::vector<std::string>& keys) const {
    return std::ranges::find_first_of(keys, doubtful) == keys.end();
  }
};

bool given(const Config& config, const std::string& key) { return config.origin(key).text != Origin{}.text; }

// Where to point: the first of the keys that somebody wrote, else the first.
Origin written(const Config& config, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (given(config, key)) return config.origin(key);
  }
  return config.origin(keys.front());
}

void check_batch(const Checked& checked, int world) {
  const Config& config = checked.config;
  if (!checked.sure_of({"training.global_batch_size", "training.local_batch_size"})) return;
  const std::int64_t global = config.training.global_batch_size, local = config.training.local_batch_size;
  if (global < 0) return;
  const std::int64_t ranks = std::max(world, 1), product = local * ranks;
  if (constexpr std::int64_t kMost = 1'000'000; global / product > kMost)
    return checked.errors.add(config.origin("training.global_batch_size"),
                              str("[training] global_batch_size ", global, " makes ", global / product,
                                  " micro-steps of local_batch_size ", local, "; at most ", kMost, " are possible"));
  if (global % product == 0) return;
  const std::string of_ranks = world > 0 ? str(" x ", world, world == 1 ? " rank = " : " ranks = ", product) : "";
  checked.errors.add(
      written(config, {"training.global_batch_size", "training.local_batch_size"}),
      str("[training] global_batch_size ", global, " is not a multiple of local_batch_size ", local, of_ranks));
}

// A validation takes as many sequences as a step, so that its loss does not depend on the number of ranks.
void check_validation(const Checked& checked, int world) {
  const Config& config = checked.config;
  const std::int64_t local = config.validation.local_batch_size;
  if (!checked.errors.empty() || !config.validation.enable || local == 0) return;
  const std::int64_t rows = config.training.local_batch_size * micro_steps(config, std::max(world, 1));
  if (rows % local == 0) return;
  checked.errors.add(config.origin("validation.local_batch_size"),
                     str("[validation] local_batch_size ", local, " does not divide the ", rows,
                         " sequences that a rank has in a step"));
}

void check_length(const Checked& checked) {
  const Config& config = checked.config;
  if (config.training.epochs == 0 || !given(config, "training.steps")) return;
  checked.errors.add(config.origin("training.epochs"),
                     str("[training] epochs ", config.training.epochs, " and steps ", config.training.steps, " (",
                         config.origin("training.steps").text, ") are both given; leave one out"));
}

// Length of the schedule; 0 = not known before the data are.
std::int64_t schedule_length(const Config& config) {
  if (config.lr_scheduler.total_steps > 0) return config.lr_scheduler.total_steps;
  return config.training.epochs > 0 ? 0 : config.training.steps;
}

void check_schedule(const Checked& checked) {
  Config& config = checked.config;
  if (!checked.sure_of({"training.steps", "training.epochs", "lr_scheduler.total_steps", "lr_scheduler.warmup_steps",
                        "lr_scheduler.decay_ratio"})) {
    return;
  }
  Config::Scheduler& schedule = config.lr_scheduler;
  const std::int64_t total = schedule_length(config);
  if (total == 0) return;
  if (!given(config, "lr_scheduler.warmup_steps") && schedule.warmup_steps > total) schedule.warmup_steps = total / 10;
  if (schedule.warmup_steps > total) {
    checked.errors.add(config.origin("lr_scheduler.warmup_steps"),
                       str("[lr_scheduler] warmup_steps ", schedule.warmup_steps,
                           " is longer than the whole schedule of ", total, " steps"));
  } else if (schedule.decay_ratio > 0) {
    const auto decay = static_cast<std::int64_t>(std::llround(schedule.decay_ratio * static_cast<double>(total)));
    if (schedule.warmup_steps + decay > total) {
      checked.errors.add(
          written(config, {"lr_scheduler.decay_ratio", "lr_scheduler.warmup_steps"}),
          str("[lr_scheduler] warmup_steps ", schedule.warmup_steps, " and decay_ratio ", exact(schedule.decay_ratio),
              " (", decay, " steps) are together longer than the schedule of ", total, " steps"));
    }
  }
}

void check_files(const Checked& checked) {
  const Config& config = checked.config;
  ConfigErrors& errors = checked.errors;
  if (checked.sure_of({"training.dataset_path"}) && config.training.dataset_path.empty()) {
    const Origin where =
        given(config, "training.dataset_path") ? config.origin("training.dataset_path") : Origin{config.file};
    errors.add(where, "[training] dataset_path is not set; name the file or folder to train on");
  }
  if (checked.sure_of({"validation.dataset_path"}) && config.validation.enable &&
      config.validation.dataset_path.empty()) {
    errors.add(config.origin("validation.enable"), "[validation] enable needs dataset_path, which is not set");
  }
  const Config::Checkpoint& checkpoint = config.checkpoint;
  if (checkpoint.resume.empty()) {
    errors.add(config.origin("checkpoint.resume"), "[checkpoint] resume must be none, auto or a folder (got \"\")");
  }
  const bool named = checkpoint.resume != "none" && checkpoint.resume != "auto";
  if (named && !checkpoint.initial_load_path.empty()) {
    errors.add(config.origin("checkpoint.resume"),
               str("[checkpoint] resume names a snapshot and initial_load_path (",
                   config.origin("checkpoint.initial_load_path").text, ") another start; leave one out"));
  }
  for (const auto& [key, text] :
       {std::pair{"job.dump_folder", &config.job.dump_folder}, std::pair{"checkpoint.folder", &checkpoint.folder}}) {
    if (text->empty()) errors.add(config.origin(key), str(key, " must name a folder (got \"\")"));
  }
}

}  // namespace

void check_config(Settings& settings, int world) {
  const Checked checked{settings.config(), settings.doubtful(), settings.errors()};
  check_batch(checked, world);
  check_length(checked);
  check_schedule(checked);
  check_files(checked);
  check_validation(checked, world);
}

}  // namespace shale

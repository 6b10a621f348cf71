// What a user probably meant by a name that is not in the table, and ranges in words.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/config/schema.h"

namespace shale {
namespace {

struct Hint {
  std::string_view name, text;
};

// Names of other trainers, said in ours.
constexpr Hint kHints[] = {
    {"batch_size", "write local_batch_size (per rank and micro-step) or global_batch_size"},
    {"micro_batch_size", "write [training] local_batch_size"},
    {"per_device_train_batch_size", "write [training] local_batch_size"},
    {"gradient_accumulation_steps", "it follows from [training] global_batch_size / (local_batch_size x ranks)"},
    {"learning_rate", "write [optimizer] lr"},
    {"max_steps", "write [training] steps"},
    {"sequence_length", "write [training] seq_len"},
    {"max_grad_norm", "write [training] max_norm"},
    {"min_lr", "write [lr_scheduler] min_lr_factor, a fraction of lr"},
    {"dtype", "number formats are chosen by [precision] plugin"},
    {"mixed_precision_param", "number formats are chosen by [precision] plugin"},
    {"mixed_precision_reduce", "number formats are chosen by [precision] plugin"},
    {"enable_cpu_offload", "write [offload] plugin"},
    {"data_parallel_shard_degree", "sharding is chosen by [sharding] plugin and [sharding.options]"},
    {"data_parallel_replicate_degree", "sharding is chosen by [sharding] plugin and [sharding.options]"},
    {"fsdp_reshard_after_forward", "sharding is chosen by [sharding] plugin"},
    {"parallelism", "sharding is chosen by [sharding] plugin and [sharding.options]"},
    {"fsdp", "sharding is chosen by [sharding] plugin and [sharding.options]"},
};

std::string hint_for(const std::string& name) {
  const auto found = std::ranges::find_if(kHints, [&](const Hint& hint) { return hint.name == name; });
  return found == std::end(kHints) ? "" : std::string(found->text);
}

// The sections that have a key of this name.
std::string homes_of(const std::string& name) {
  std::vector<std::string> out;
  for (const Key& key : keys()) {
    if (key.name == name) out.push_back(str("[", key.section, "]"));
  }
  return join(out, " or ");
}

// A key of another section whose name is near: "[optimizer] weight_decay".
std::string near_elsewhere(const std::string& name) {
  std::vector<std::string> all;
  for (const Key& key : keys()) all.emplace_back(key.name);
  const std::string near = nearest(name, all);
  return near.empty() || near == "plugin" ? "" : str(homes_of(near), " ", near);
}

std::string shown_number(double value) {
  const bool whole = std::abs(value) < 1e15 && value == std::floor(value);
  return whole ? str(static_cast<std::int64_t>(value)) : exact(value);
}

}  // namespace

std::string unknown_key(std::string_view section, const std::string& name) {
  const std::string what = str("[", section, "] ", name, " is not a key");
  if (const std::string near = nearest(name, names_of_section(section)); !near.empty()) {
    return str(what, "; did you mean ", near, "?");
  }
  if (const std::string homes = homes_of(name); !homes.empty() && name != "plugin") {
    return str(what, " of this section; it belongs to ", homes);
  }
  if (const std::string hint = hint_for(name); !hint.empty()) return str(what, "; ", hint);
  if (name == "options" || name == "plugin") return str(what, " of this section; only kinds of plugins have it");
  if (const std::string other = near_elsewhere(name); !other.empty()) return str(what, "; did you mean ", other, "?");
  if (is_plugin_section(section)) return str(what, "; options of the plugin belong to [", section, ".options]");
  return str(what, "; the keys are ", join(names_of_section(section), ", "));
}

std::string unknown_section(const std::string& name) {
  const std::string homes = homes_of(name);
  if (!homes.empty() && name != "plugin") return str(name, " stands outside of its section; it belongs to ", homes);
  const std::string what = str("[", name, "] is not a section");
  if (const std::string near = nearest(name, sections()); !near.empty()) {
    return str(what, "; did you mean [", near, "]?");
  }
  if (const std::string hint = hint_for(name); !hint.empty()) return str(what, "; ", hint);
  if (const std::string other = near_elsewhere(name); !other.empty()) return str(what, "; did you mean ", other, "?");
  return str(what, "; the sections are ", join(sections(), ", "));
}

std::string range_text(const Key& key) {
  if (!key.choices.empty()) return join(split(key.choices, '|'), " | ");
  const Limits any, &limits = key.limits;
  const bool low = limits.least > any.least, high = limits.most < any.most;
  std::string out;
  if (low && limits.open) out = str("above ", shown_number(limits.least));
  if (low && !limits.open) out = str("at least ", shown_number(limits.least));
  if (high) out += str(low ? " and " : "", limits.open ? "below " : "at most ", shown_number(limits.most));
  if (!std::isnan(limits.or_value)) out += str(", or ", shown_number(limits.or_value));
  return out;
}

}  // namespace shale

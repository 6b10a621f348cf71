#include "core/config/config.h"

#include <algorithm>

#include "core/base/hash.h"
#include "core/config/settings.h"

namespace shale {

Origin Config::origin(const std::string& key) const {
  const auto found = std::ranges::find_if(origins, [&](const auto& pair) { return pair.first == key; });
  return found == origins.end() ? Origin{} : found->second;
}

void ConfigErrors::add(const Origin& origin, const std::string& text) {
  lines_.push_back(str(origin.text, ": ", text));
}

void ConfigErrors::raise() const {
  if (lines_.empty()) return;
  if (lines_.size() == 1) fail(Code::config, lines_.front());
  fail(Code::config, lines_.size(), " errors in the configuration:\n  ", join(lines_, "\n  "));
}

Config read_config(const std::string& file, const std::vector<Override>& overrides, int world,
                   const Environment& environment) {
  Settings settings(file);
  settings.take_file();
  settings.take_environment(environment);
  settings.take_overrides(overrides);
  check_config(settings, world);
  settings.errors().raise();
  Config& config = settings.config();
  config.text = render(config, false);
  config.hash = hash_text(config.text);
  return config;
}

Config read_config(const std::string& file, const std::vector<Override>& overrides, int world) {
  return read_config(file, overrides, world, process_environment());
}

std::int64_t micro_steps(const Config& config, int world) {
  const Config::Training& training = config.training;
  if (training.global_batch_size < 0) return 1;
  return training.global_batch_size / (training.local_batch_size * std::max(world, 1));
}

}  // namespace shale

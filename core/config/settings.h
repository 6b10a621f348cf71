// Lays the sources of a configuration over each other: file, then environment, then command line. Private to this room.
#pragma once

#include <string>

#include "core/config/environment.h"
#include "core/config/toml_file.h"

namespace shale {

class Settings {
 public:
  explicit Settings(const std::string& file) { config_.file = file; }
  void take_file();
  void take_environment(const Environment&);
  void take_overrides(const std::vector<Override>&);
  Config& config() { return config_; }
  ConfigErrors& errors() { return errors_; }
  // Keys that were refused or misspelt: they still have their defaults, which must not be blamed for anything.
  const std::vector<std::string>& doubtful() const { return doubtful_; }

 private:
  void take_line(const Line&);
  void take_option(const std::string& section, RawOption);
  void take_text(const std::string& path, const std::string& text, const Origin&);
  void refuse(const Origin&, const std::string& section, const std::string& key, const std::string& wrong);
  void set_origin(const Key&, const Origin&);
  void resolve_plugin(const Key&, const Origin&);

  Config config_;
  ConfigErrors errors_;
  std::vector<std::string> doubtful_;
};

// Finds what cannot be, settings that contradict each other, and fills in what a default takes from other settings.
void check_config(Settings&, int world);

// The resolved file; with origins, each line ends in a comment that says where the value was written.
std::string render(const Config&, bool origins);

}  // namespace shale

// Where messages go: standard error for messages, standard output for the run's own lines. One Log is made in main and
// handed down by reference; thread-safe. Only rank 0 prints info and warnings; every rank prints errors.
#pragma once

#include <memory>
#include <string>

namespace shale {

class Log {
 public:
  enum class Level { debug, info, warning, error };

  explicit Log(int rank = 0, Level least = Level::info);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(const std::string& text) const { write(Level::debug, text); }
  void info(const std::string& text) const { write(Level::info, text); }
  void warning(const std::string& text) const { write(Level::warning, text); }
  void error(const std::string& text) const { write(Level::error, text); }
  // Once per run and text, however often it is called.
  void warn_once(const std::string& text) const;
  void write(Level, const std::string& text) const;

  int rank() const { return rank_; }

 private:
  struct Sink;
  int rank_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace shale

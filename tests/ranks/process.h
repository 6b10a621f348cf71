// A child process of a test: what it returned, and the error that ended it.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "core/comm/rank_report.h"

namespace shale {

class Process {
 public:
  explicit Process(const std::function<int()>& body) : pipe_(make_pipe()), pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(run_reporting(pipe_.write, body));
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int pid() const { return pid_; }
  // Its exit code, or 128 + n after signal n.
  int join() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    const auto report = read_report(pipe_.read);
    error_ = report ? std::string(code_name(report->code)) + ": " + report->text : "";
    secondary_ = report && report->secondary;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  const std::string& error() const { return error_; }  // after join(): "E-dist: ...", "" for none
  bool secondary() const { return secondary_; }

 private:
  Pipe pipe_;
  pid_t pid_;
  std::string error_;
  bool secondary_ = false;
};

// Bytes between processes; a read waits.
class Channel {
 public:
  Channel() {
    if (pipe(ends_) != 0) fail(Code::io, "no pipe");
  }
  ~Channel() {
    close(ends_[0]);
    close(ends_[1]);
  }
  template <class Value>
  void put(const Value& value) const {
    if (write(ends_[1], &value, sizeof value) != static_cast<ssize_t>(sizeof value)) _exit(99);
  }
  template <class Value>
  Value take() const {
    Value value{};
    if (read(ends_[0], &value, sizeof value) != static_cast<ssize_t>(sizeof value)) _exit(99);
    return value;
  }

 private:
  int ends_[2];
};

}  // namespace shale

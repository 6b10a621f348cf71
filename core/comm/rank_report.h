// How a forked rank tells its launcher why it failed: one record through a pipe. No torch.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/comm/net.h"

namespace shale {

struct RankReport {
  Code code = Code::internal;
  bool secondary = false;
  double time = 0;  // base/clock.h's now(); the ranks of a host share that clock
  std::string text;
};

struct Pipe {
  OwnedFd read, write;
};
Pipe make_pipe();  // neither end survives exec; reading does not block. Error{io}

void send_report(const OwnedFd& to, const RankReport&) noexcept;  // texts are cut so that the pipe takes them whole
std::optional<RankReport> read_report(const OwnedFd& from);       // none if nothing or no whole record came

RankReport current_exception_report();  // inside a catch block

// Runs `main` as the whole of a process: its result, or the code of its exception, which is sent to the launcher.
template <class Main>
int run_reporting(const OwnedFd& to, Main&& main) {
  try {
    return main();
  } catch (...) {
    const RankReport report = current_exception_report();
    send_report(to, report);
    return static_cast<int>(report.code);
  }
}

}  // namespace shale

// `--nproc N`: starts the ranks of this host by fork, watches them and ends them together. Called on the main thread
// before anything of torch has run in this process.
#pragma once

#include <functional>
#include <string>

#include "core/config/launch.h"

namespace shale {

struct LauncherOptions {
  double grace = 2;         // seconds the others have to end by themselves after one failed, before SIGTERM
  double kill_after = 3;    // seconds between that SIGTERM and SIGKILL
  double leave_after = 60;  // seconds the others have after one was done, or left by a signal to save, before SIGTERM
  std::function<void(const std::string&)> print;  // one line; standard error if empty
};

// Runs rank_main in base.local_world (= base.spawn) child processes, each with the Launch of its rank: base.rank is the
// first, the port a free one if base.port is 0. rank_main's exceptions are reported by the launcher: the others are
// ended, and the first cause is printed once, last. Returns the exit code for this process: 0; the code of the first
// cause, 128+n for a rank killed by signal n; or what the ranks returned after a signal. SIGINT, SIGTERM and SIGHUP are
// handed on to the ranks, each once in a row; a second SIGINT kills them. A SIGHUP that is ignored stays ignored. Ranks
// never outlive this process. Error{dist} when the port is taken, Error{io} when no process can be started.
int launch_local(const Launch& base, const std::function<int(const Launch&)>& rank_main, const LauncherOptions& = {});

}  // namespace shale

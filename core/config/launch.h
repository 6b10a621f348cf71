// How this process was started: by shale itself, torchrun, Slurm, MPI, Kubernetes, or alone. Read from the environment
// once; the order of sources and their variables are in core/config/README.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/config/environment.h"

namespace shale {

struct Launch {
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::string master = "127.0.0.1";
  int port = 0;              // 0 with world 1: no network at all; 0 with spawn: any free one
  bool agent_store = false;  // the launcher already serves the store: every rank is a client
  std::string prefix;        // store key prefix, from the restart count
  // > 0: this process is asked to start that many local ranks itself. Then rank is that of the first of them,
  // local_world = spawn, and world counts those of other hosts too.
  int spawn = 0;
  std::string source = "single process";  // who won: "--nproc", "RANK", "OMPI_COMM_WORLD_RANK", ...
  std::string interface_name;  // network interface to bind, from GLOO_SOCKET_IFNAME; "" = by route to the master
  std::string error_file;      // TORCHELASTIC_ERROR_FILE, or ""
  double init_timeout = 300, timeout = 100;  // seconds: start-up, and any later wait
  // Of a local launch: where this rank leaves the step it is in, for the launcher to read when it dies. Else null.
  std::atomic<std::int64_t>* step_told = nullptr;
  int listen_fd = -1;  // rank 0 of a local launch: the listening socket its store takes over, so nobody steals the port
};

// nproc: the value of --nproc, 0 = not given. Error{config} naming the variables that contradict each other.
Launch read_launch(int nproc);
Launch read_launch(int nproc, const Environment&);

}  // namespace shale

// How this process was started: by shale itself, torchrun, Slurm, MPI, Kubernetes, or alone. Read from the environment
// once; the order of sources and their variables are in core/config/README.md.
#pragma once

#include <string>

namespace shale {

struct Launch {
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::string master = "127.0.0.1";
  int port = 0;                 // 0 with world 1: no network at all
  bool agent_store = false;     // torchrun's agent already serves the store: every rank is a client
  std::string prefix;           // store key prefix, from the restart count
  int spawn = 0;                // > 0: this process is asked to start that many local ranks itself
  std::string source = "single process";  // who won: "--nproc", "RANK", "OMPI_COMM_WORLD_RANK", ...
  std::string interface_name;   // network interface to bind, from GLOO_SOCKET_IFNAME; "" = by route to the master
  std::string error_file;       // TORCHELASTIC_ERROR_FILE, or ""
  double init_timeout = 300, timeout = 100;  // seconds: start-up, and any later wait
};

// nproc: the value of --nproc, 0 = not given. Error{config} naming the variables that contradict each other.
Launch read_launch(int nproc);

}  // namespace shale

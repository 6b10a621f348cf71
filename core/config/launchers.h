// What other launchers tell a process, one reader per launcher; each answers nothing when its launcher is not there or
// started one process only. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "core/config/launch.h"
#include "core/config/launch_env.h"

namespace shale {

inline constexpr int kMostRanks = 1'000'000, kMostLocal = 4096, kDefaultPort = 29500;

std::optional<Launch> from_torchrun(const Environment&);  // RANK and WORLD_SIZE, also with a world of one
std::optional<Launch> from_mpi(const Environment&);       // Open MPI, MPICH, Intel, MVAPICH
std::optional<Launch> from_slurm(const Environment&);     // srun

// A job step of several tasks. In the body of a batch script SLURM_PROCID is set too, but there is no step.
struct SlurmStep {
  std::int64_t tasks = 1, nodes = 1, node = 0;
};
std::optional<SlurmStep> slurm_step(const Environment&);

// Where rank 0 is. one_host: all ranks are known to be on this host.
void find_master(Launch&, const Environment&, bool one_host);
void find_port(Launch&, const Environment&, int otherwise);  // otherwise 0: an error when nothing says

std::string shown(const Environment&, const std::string& name);  // "RANK=3", for messages

}  // namespace shale

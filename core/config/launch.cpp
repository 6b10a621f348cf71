#include "core/config/launch.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/config/launchers.h"

namespace shale {
namespace {

// Several hosts that each start `local` ranks of their own.
Launch spawn_on(const Environment& environment, std::int64_t nodes, std::int64_t node, int local) {
  Launch launch;
  launch.world = static_cast<int>(nodes * local);
  launch.rank = static_cast<int>(node * local);
  launch.local_world = local;
  launch.spawn = local > 1 ? local : 0;
  if (nodes > 1) {
    launch.source = "--nproc";
    find_master(launch, environment, false);
    find_port(launch, environment, kDefaultPort);
  }
  return launch;
}

// PET_NNODES: the hosts of a Kubernetes job; "2:2" is a range of one size.
std::int64_t pet_nodes(const Environment& environment) {
  const std::string text = lookup(environment, "PET_NNODES");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return number(environment, "PET_NNODES", 1, kMostRanks).value_or(1);
  const std::string low = text.substr(0, colon);
  if (low != text.substr(colon + 1)) {
    fail(Code::config, "PET_NNODES=", text, ": the number of hosts must be fixed; set one number");
  }
  return number({{"PET_NNODES", low}}, "PET_NNODES", 1, kMostRanks).value_or(1);
}

std::int64_t pet_node(const Environment& environment, std::int64_t nodes) {
  const auto node = number(environment, "PET_NODE_RANK", 0, nodes - 1);
  if (!node && nodes > 1) fail(Code::config, shown(environment, "PET_NNODES"), " but PET_NODE_RANK is not set");
  return node.value_or(0);
}

bool is_automatic(const std::string& local) { return local == "auto" || local == "gpu" || local == "cpu"; }

// One rank per visible device for "auto" and "gpu"; without devices one rank, as threads fill a CPU.
std::int64_t pet_local(const Environment& environment) {
  const std::string text = lookup(environment, "PET_NPROC_PER_NODE");
  if (!is_automatic(text)) {
    return number(environment, "PET_NPROC_PER_NODE", 1, kMostLocal).value_or(1);
  }
  const std::string devices = text == "cpu" ? "" : lookup(environment, "CUDA_VISIBLE_DEVICES");
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(split(devices, ',').size()));
}

void refuse_other_launcher(int nproc, const Environment& environment, bool pet) {
  const bool per_host = pet && lookup(environment, "LOCAL_RANK").empty();
  if (!lookup(environment, "RANK").empty() && !per_host) {
    fail(Code::config, "--nproc ", nproc, " starts ranks, but ", shown(environment, "RANK"),
         " says that a launcher has done so; leave out --nproc or unset RANK and WORLD_SIZE");
  }
  if (const auto mpi = from_mpi(environment)) {
    fail(Code::config, "--nproc ", nproc, " starts ranks, but ", shown(environment, mpi->source), " of ", mpi->world,
         " says that MPI has done so; leave out --nproc or start without mpirun");
  }
}

std::optional<Launch> from_nproc(int nproc, const Environment& environment) {
  if (nproc == 0) return std::nullopt;
  if (nproc < 1 || nproc > kMostLocal) {
    fail(Code::config, "--nproc ", nproc, ": must be a whole number from 1 to ", kMostLocal);
  }
  const std::int64_t hosts = pet_nodes(environment);
  refuse_other_launcher(nproc, environment, !lookup(environment, "PET_NNODES").empty());
  std::int64_t nodes = hosts, node = pet_node(environment, hosts);
  if (const auto step = slurm_step(environment)) {
    if (step->tasks != step->nodes) {
      fail(Code::config, "--nproc ", nproc, " starts ranks, but ", shown(environment, "SLURM_PROCID"), " is one of ",
           step->tasks, " tasks on ", step->nodes, " nodes; leave out --nproc or use srun with one task per node");
    }
    nodes = step->nodes;
    node = step->node;
  }
  const std::string local = lookup(environment, "PET_NPROC_PER_NODE");
  if (hosts > 1 && !local.empty() && !is_automatic(local) && pet_local(environment) != nproc) {
    fail(Code::config, "--nproc ", nproc, " contradicts ", shown(environment, "PET_NPROC_PER_NODE"));
  }
  if (node >= nodes || nodes * nproc > kMostRanks) {
    fail(Code::config, "--nproc ", nproc, " on node ", node, " of ", nodes, " is out of range");
  }
  Launch launch = spawn_on(environment, nodes, node, nproc);
  launch.source = "--nproc";
  return launch;
}

std::optional<Launch> from_pet(const Environment& environment) {
  if (lookup(environment, "PET_NNODES").empty() && lookup(environment, "PET_NPROC_PER_NODE").empty()) {
    return std::nullopt;
  }
  const std::int64_t nodes = pet_nodes(environment), local = pet_local(environment);
  if (nodes * local == 1) return std::nullopt;
  if (nodes * local > kMostRanks) {
    fail(Code::config, shown(environment, "PET_NNODES"), " times ", local, " ranks is out of range");
  }
  Launch launch = spawn_on(environment, nodes, pet_node(environment, nodes), static_cast<int>(local));
  launch.source = nodes > 1 ? "PET_NNODES" : "PET_NPROC_PER_NODE";
  return launch;
}

Launch single(const Environment& environment) {
  if (!lookup(environment, "PMIX_RANK").empty() && lookup(environment, "PMIX_RANK") != "0") {
    fail(Code::config, shown(environment, "PMIX_RANK"),
         " says that this is one of several ranks, but nothing says of how many; set RANK and WORLD_SIZE");
  }
  return Launch{};
}

Launch find_launch(int nproc, const Environment& environment) {
  if (auto launch = from_nproc(nproc, environment)) return *launch;
  if (auto launch = from_torchrun(environment)) return *launch;
  if (auto launch = from_mpi(environment)) return *launch;
  if (auto launch = from_slurm(environment)) return *launch;
  if (auto launch = from_pet(environment)) return *launch;
  return single(environment);
}

}  // namespace

Launch read_launch(int nproc, const Environment& environment) {
  Launch launch = find_launch(nproc, environment);
  launch.interface_name = lookup(environment, "GLOO_SOCKET_IFNAME");
  launch.error_file = lookup(environment, "TORCHELASTIC_ERROR_FILE");
  return launch;
}

Launch read_launch(int nproc) { return read_launch(nproc, process_environment()); }

}  // namespace shale

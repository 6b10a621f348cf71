#include "core/config/launchers.h"

#include <array>

#include "core/base/error.h"

namespace shale {
namespace {

// The variables by which one kind of launcher tells a process its place.
struct Names {
  std::string rank, size;
  std::vector<std::string> local_rank, local_size;
};

const Names& torchrun_names() {
  static const Names names{"RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}};
  return names;
}

const std::array<Names, 3>& mpi_names() {
  static const std::array<Names, 3> names{{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_LOCAL_RANK"}, {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {"PMI_RANK",
       "PMI_SIZE",
       {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
       {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
      {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", {"MV2_COMM_WORLD_LOCAL_RANK"}, {"MV2_COMM_WORLD_LOCAL_SIZE"}},
  }};
  return names;
}

}  // namespace

std::string shown(const Environment& environment, const std::string& name) {
  return str(name, "=", lookup(environment, name));
}

namespace {

// Rank and world from a pair of variables; nothing when neither is set.
std::optional<Launch> read_place(const Environment& environment, const Names& names) {
  const auto rank = number(environment, names.rank, 0, kMostRanks - 1);
  const auto world = number(environment, names.size, 1, kMostRanks);
  if (!rank && !world) return std::nullopt;
  if (!rank || !world) {
    const std::string& set = rank ? names.rank : names.size;
    const std::string& missing = rank ? names.size : names.rank;
    fail(Code::config, shown(environment, set), " is set but ", missing, " is not; set both or neither");
  }
  if (*rank >= *world) {
    fail(Code::config, shown(environment, names.rank), " must be below ", shown(environment, names.size));
  }
  Launch launch;
  launch.rank = static_cast<int>(*rank);
  launch.world = static_cast<int>(*world);
  launch.source = names.rank;
  return launch;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Place on this host. Unknown with a loopback master: all ranks are here; otherwise this rank is alone.
void find_local(Launch& launch, const Environment& environment, const Names& names) {
  const auto rank = first_number(environment, names.local_rank, 0, kMostLocal - 1);
  const auto size = first_number(environment, names.local_size, 1, kMostLocal);
  const bool one_host = is_loopback(launch.master);
  if (size) {
    if (size->value > launch.world) {
      fail(Code::config, size->name, "=", size->value, " is more than ", shown(environment, names.size));
    }
    launch.local_world = static_cast<int>(size->value);
    launch.local_rank = rank ? static_cast<int>(rank->value) : launch.rank % launch.local_world;
  } else if (rank) {
    launch.local_rank = static_cast<int>(rank->value);
    launch.local_world = one_host ? launch.world : launch.local_rank + 1;
  } else if (one_host) {
    launch.local_rank = launch.rank;
    launch.local_world = launch.world;
  }
  if (launch.local_rank >= launch.local_world) {
    fail(Code::config, rank->name, "=", launch.local_rank, " must be below ", size ? size->name : names.size, "=",
         launch.local_world);
  }
}

std::string slurm_hosts_variable(const Environment& environment) {
  return lookup(environment, "SLURM_STEP_NODELIST").empty() ? "SLURM_JOB_NODELIST" : "SLURM_STEP_NODELIST";
}

// Where rank 0 is. one_host: all ranks are known to be on this host.
}  // namespace

void find_master(Launch& launch, const Environment& environment, bool one_host) {
  const std::string hosts = slurm_hosts_variable(environment);
  if (const std::string given = lookup(environment, "MASTER_ADDR"); !given.empty()) {
    launch.master = given;
  } else if (const std::string pet = lookup(environment, "PET_MASTER_ADDR"); !pet.empty()) {
    launch.master = pet;
  } else if (one_host) {
    launch.master = "127.0.0.1";
  } else if (const std::string list = lookup(environment, hosts); !list.empty()) {
    launch.master = expand_hosts(hosts, list).front();
  } else {
    fail(Code::config, launch.source, " says that there are ", launch.world,
         " ranks, but nothing says where rank 0 is; set MASTER_ADDR and MASTER_PORT");
  }
}

namespace {}  // namespace

void find_port(Launch& launch, const Environment& environment, int otherwise) {
  if (const auto given = first_number(environment, {"MASTER_PORT", "PET_MASTER_PORT"}, 1, 65535)) {
    launch.port = static_cast<int>(given->value);
  } else if (const std::string job = lookup(environment, "SLURM_JOB_ID"); !job.empty()) {
    launch.port = port_of_job(job);
  } else if (const std::string name = lookup(environment, "PMIX_NAMESPACE"); !name.empty()) {
    launch.port = port_of_job(name);
  } else if (otherwise > 0) {
    launch.port = otherwise;
  } else {
    fail(Code::config, launch.source, " says that there are ", launch.world, " ranks, but MASTER_PORT is not set");
  }
}

namespace {

bool under_torchrun(const Environment& environment) {
  return !lookup(environment, "TORCHELASTIC_RUN_ID").empty() ||
         !lookup(environment, "TORCHELASTIC_RESTART_COUNT").empty();
}

// RANK of one launcher beside the rank of another: the same job must not be two jobs. torchrun may itself be started
// by the other launcher, once per host; then the two count different things.
void check_two_launchers(const Launch& launch, const Environment& environment) {
  if (under_torchrun(environment)) return;
  for (const Names& names : mpi_names()) {
    const auto other = read_place(environment, names);
    if (!other || other->world == 1) continue;
    const bool same_world = other->world == launch.world;
    if ((same_world && other->rank != launch.rank) || launch.world == 1) {
      fail(Code::config, shown(environment, "RANK"), " and ", shown(environment, "WORLD_SIZE"), " contradict ",
           shown(environment, names.rank), " and ", shown(environment, names.size), "; unset one pair");
    }
  }
}

}  // namespace

std::optional<Launch> from_torchrun(const Environment& environment) {
  std::optional<Launch> launch = read_place(environment, torchrun_names());
  if (!launch) return std::nullopt;
  check_two_launchers(*launch, environment);
  const auto local = first_number(environment, torchrun_names().local_size, 1, kMostLocal);
  if (launch->world > 1) {
    find_master(*launch, environment, local && local->value == launch->world);
    find_port(*launch, environment, 0);
  }
  find_local(*launch, environment, torchrun_names());
  launch->agent_store = launch->world > 1 && lookup(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const auto restarts = number(environment, "TORCHELASTIC_RESTART_COUNT", 0, 1'000'000'000)) {
    launch->prefix = str("restart", *restarts, "/");
  }
  return launch;
}

std::optional<Launch> from_mpi(const Environment& environment) {
  for (const Names& names : mpi_names()) {
    std::optional<Launch> launch = read_place(environment, names);
    if (!launch || launch->world == 1) continue;
    const auto local = first_number(environment, names.local_size, 1, kMostLocal);
    find_master(*launch, environment, local && local->value == launch->world);
    find_port(*launch, environment, kDefaultPort);
    find_local(*launch, environment, names);
    return launch;
  }
  return std::nullopt;
}

std::optional<SlurmStep> slurm_step(const Environment& environment) {
  if (lookup(environment, "SLURM_PROCID").empty()) return std::nullopt;
  std::vector<std::string> names{"SLURM_STEP_NUM_TASKS"};
  const std::string step = lookup(environment, "SLURM_STEP_ID");
  if (!step.empty() && step != "batch") names.insert(names.end(), {"SLURM_NTASKS", "SLURM_NPROCS"});
  const auto tasks = first_number(environment, names, 1, kMostRanks);
  if (!tasks || tasks->value == 1) return std::nullopt;
  SlurmStep out{tasks->value, 1, 0};
  if (const auto n = first_number(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1, kMostRanks)) {
    out.nodes = n->value;
  }
  out.node = number(environment, "SLURM_NODEID", 0, kMostRanks).value_or(0);
  return out;
}

std::optional<Launch> from_slurm(const Environment& environment) {
  const auto step = slurm_step(environment);
  if (!step) return std::nullopt;
  const std::int64_t rank = *number(environment, "SLURM_PROCID", 0, kMostRanks - 1);
  if (rank >= step->tasks) {
    fail(Code::config, shown(environment, "SLURM_PROCID"), " must be below the ", step->tasks, " tasks of the step");
  }
  Launch launch;
  launch.rank = static_cast<int>(rank);
  launch.world = static_cast<int>(step->tasks);
  launch.source = "SLURM_PROCID";
  find_master(launch, environment, step->nodes == 1);
  find_port(launch, environment, kDefaultPort);
  const bool of_step = !lookup(environment, "SLURM_STEP_TASKS_PER_NODE").empty();
  const std::string variable = of_step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const auto per_node = expand_tasks(variable, lookup(environment, variable));
  const bool known = step->node < static_cast<std::int64_t>(per_node.size());
  launch.local_world = known ? static_cast<int>(per_node[step->node]) : 1;
  launch.local_rank = static_cast<int>(number(environment, "SLURM_LOCALID", 0, kMostLocal).value_or(0));
  if (!known) launch.local_world = launch.local_rank + 1;
  if (launch.local_rank >= launch.local_world) {
    fail(Code::config, shown(environment, "SLURM_LOCALID"), " must be below the ", launch.local_world,
         " tasks of this node in ", shown(environment, variable));
  }
  return launch;
}

}  // namespace shale

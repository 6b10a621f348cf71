#include "core/config/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/launch_env.h"

namespace shale {
namespace {

using testing::HasSubstr;

std::string error(int nproc, const Environment& environment) {
  try {
    read_launch(nproc, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::config);
    return error.what();
  }
  return "";
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29511"},
                            {"TORCHELASTIC_RUN_ID", "x"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_ERROR_FILE", "/tmp/e.json"}};

const Environment kSlurm{{"SLURM_PROCID", "9"},
                         {"SLURM_STEP_NUM_TASKS", "12"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_TASKS_PER_NODE", "8,4"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                         {"SLURM_JOB_ID", "123456"}};

TEST(Launch, AloneWithoutAnyVariable) {
  const Launch launch = read_launch(0, {});
  EXPECT_EQ(launch.world, 1);
  EXPECT_EQ(launch.port, 0);
  EXPECT_EQ(launch.spawn, 0);
  EXPECT_EQ(launch.source, "single process");
}

TEST(Launch, NprocSpawns) {
  const Launch launch = read_launch(4, {{"GLOO_SOCKET_IFNAME", "eth1"}});
  EXPECT_EQ(launch.spawn, 4);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_world, 4);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.port, 0);
  EXPECT_EQ(launch.source, "--nproc");
  EXPECT_EQ(launch.interface_name, "eth1");
  EXPECT_EQ(read_launch(1, {}).spawn, 0);  // nothing to start
  EXPECT_THAT(error(-1, {}), HasSubstr("--nproc -1"));
  EXPECT_THAT(error(5000, {}), HasSubstr("--nproc 5000"));
}

TEST(Launch, Torchrun) {
  const Launch launch = read_launch(0, with(kTorchrun, kSlurm));  // srun torchrun: RANK wins
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world, 4);
  EXPECT_EQ(launch.master, "node0");
  EXPECT_EQ(launch.port, 29511);
  EXPECT_TRUE(launch.agent_store);
  EXPECT_EQ(launch.prefix, "restart2/");
  EXPECT_EQ(launch.error_file, "/tmp/e.json");
  EXPECT_EQ(launch.source, "RANK");
  EXPECT_FALSE(read_launch(0, with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_store);
  // One torchrun per host, itself started by mpirun.
  EXPECT_EQ(read_launch(0, with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})).rank, 5);
}

TEST(Launch, PlainRankAndWorldSize) {
  const Environment plain{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "5000"}};
  const Launch launch = read_launch(0, plain);
  EXPECT_EQ(launch.local_rank, 1);  // a loopback master: all ranks are here
  EXPECT_EQ(launch.local_world, 2);
  EXPECT_FALSE(launch.agent_store);
  EXPECT_EQ(launch.prefix, "");
  const Launch remote = read_launch(0, with(plain, {{"MASTER_ADDR", "node0"}}));
  EXPECT_EQ(remote.local_rank, 0);
  EXPECT_EQ(remote.local_world, 1);
  const Launch deepspeed = read_launch(0, with(plain, {{"LOCAL_RANK", "1"}, {"LOCAL_SIZE", "2"}}));
  EXPECT_EQ(deepspeed.local_world, 2);
  const Launch alone = read_launch(0, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(alone.world, 1);
  EXPECT_EQ(alone.port, 0);
}

TEST(Launch, ContradictionsNameTheirVariables) {
  EXPECT_THAT(error(0, {{"RANK", "1"}}), HasSubstr("RANK=1 is set but WORLD_SIZE is not"));
  EXPECT_THAT(error(0, {{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE=4 is set but RANK is not"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"RANK", "8"}})), HasSubstr("RANK=8 must be below WORLD_SIZE=8"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"RANK", "x"}})), HasSubstr("RANK=x: must be a whole number"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"LOCAL_RANK", "4"}})),
              HasSubstr("LOCAL_RANK=4 must be below LOCAL_WORLD_SIZE=4"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
              HasSubstr("LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"MASTER_PORT", ""}})), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(error(0, with(kTorchrun, {{"MASTER_ADDR", ""}})), HasSubstr("set MASTER_ADDR"));
  EXPECT_THAT(error(2, kTorchrun), HasSubstr("--nproc 2 starts ranks, but RANK=5"));
  EXPECT_THAT(error(2, kSlurm), HasSubstr("--nproc 2 starts ranks, but SLURM_PROCID=9 is one of 12 tasks on 2 nodes"));
  const Environment mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  EXPECT_THAT(error(2, mpi), HasSubstr("OMPI_COMM_WORLD_RANK=1"));
  EXPECT_THAT(error(0, with(mpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}})),
              HasSubstr("contradict OMPI_COMM_WORLD_RANK=1"));
  EXPECT_THAT(error(0, with(mpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
              HasSubstr("contradict OMPI_COMM_WORLD_RANK=1"));
  EXPECT_THAT(error(0, {{"PMIX_RANK", "3"}}), HasSubstr("PMIX_RANK=3"));
}

TEST(Launch, OpenMpi) {
  const Environment one_host{{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"PMIX_NAMESPACE", "job-17"}};
  const Launch launch = read_launch(0, one_host);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.master, "127.0.0.1");
  EXPECT_EQ(launch.port, port_of_job("job-17"));
  EXPECT_EQ(launch.source, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_THAT(error(0, with(one_host, {{"OMPI_COMM_WORLD_SIZE", "4"}})), HasSubstr("set MASTER_ADDR"));
  EXPECT_EQ(read_launch(0, with(one_host, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}})).master, "h");
  EXPECT_EQ(read_launch(0, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).source, "single process");
}

TEST(Launch, OtherMpis) {
  const Launch intel = read_launch(
      0,
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}, {"MASTER_ADDR", "h"}});
  EXPECT_EQ(intel.rank, 2);
  EXPECT_EQ(intel.local_rank, 0);
  EXPECT_EQ(intel.local_world, 2);
  EXPECT_EQ(intel.port, 29500);
  const Launch mvapich = read_launch(0, {{"MV2_COMM_WORLD_RANK", "1"},
                                         {"MV2_COMM_WORLD_SIZE", "2"},
                                         {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                         {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(mvapich.source, "MV2_COMM_WORLD_RANK");
  EXPECT_EQ(mvapich.master, "127.0.0.1");
}

TEST(Launch, Slurm) {
  const Launch launch = read_launch(0, kSlurm);
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.world, 12);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world, 4);
  EXPECT_EQ(launch.master, "gpu07");
  EXPECT_EQ(launch.port, port_of_job("123456"));
  EXPECT_EQ(launch.source, "SLURM_PROCID");
  EXPECT_THAT(error(0, with(kSlurm, {{"SLURM_LOCALID", "4"}})), HasSubstr("SLURM_LOCALID=4"));
  EXPECT_THAT(error(0, with(kSlurm, {{"SLURM_PROCID", "12"}})), HasSubstr("SLURM_PROCID=12"));
  EXPECT_THAT(error(0, with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu[7-"}})), HasSubstr("SLURM_STEP_NODELIST="));
}

TEST(Launch, TheBodyOfABatchScriptIsNoStep) {
  const Environment body{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "1"}};
  EXPECT_EQ(read_launch(0, body).source, "single process");
  EXPECT_EQ(read_launch(8, body).spawn, 8);
}

TEST(Launch, OneTaskPerNodeMaySpawn) {
  const Environment step = with(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  const Launch launch = read_launch(4, step);
  EXPECT_EQ(launch.spawn, 4);
  EXPECT_EQ(launch.rank, 4);
  EXPECT_EQ(launch.world, 8);
  EXPECT_EQ(launch.master, "gpu07");
  EXPECT_EQ(launch.port, port_of_job("123456"));
}

TEST(Launch, Kubernetes) {
  const Environment pet{{"PET_NNODES", "2:2"},
                        {"PET_NPROC_PER_NODE", "4"},
                        {"PET_NODE_RANK", "1"},
                        {"PET_MASTER_ADDR", "job-node-0-0.job"},
                        {"PET_MASTER_PORT", "29500"}};
  const Launch launch = read_launch(0, pet);
  EXPECT_EQ(launch.spawn, 4);
  EXPECT_EQ(launch.rank, 4);
  EXPECT_EQ(launch.world, 8);
  EXPECT_EQ(launch.master, "job-node-0-0.job");
  EXPECT_EQ(launch.port, 29500);
  EXPECT_EQ(launch.source, "PET_NNODES");
  const Environment automatic = with(pet, {{"PET_NPROC_PER_NODE", "auto"}});
  EXPECT_EQ(read_launch(0, automatic).world, 2);
  EXPECT_EQ(read_launch(0, automatic).spawn, 0);  // this process is the one rank of its host
  EXPECT_EQ(read_launch(0, automatic).rank, 1);
  EXPECT_EQ(read_launch(0, with(automatic, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}})).spawn, 3);
  EXPECT_EQ(read_launch(2, automatic).world, 4);
  // PyTorchJob: RANK counts pods there.
  EXPECT_EQ(read_launch(4, with(pet, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).rank, 4);
  EXPECT_THAT(error(2, pet), HasSubstr("--nproc 2 contradicts PET_NPROC_PER_NODE=4"));
  EXPECT_THAT(error(0, with(pet, {{"PET_NNODES", "1:4"}})), HasSubstr("PET_NNODES=1:4"));
  EXPECT_THAT(error(0, with(pet, {{"PET_NODE_RANK", ""}})), HasSubstr("PET_NODE_RANK is not set"));
  EXPECT_THAT(error(0, with(pet, {{"PET_NODE_RANK", "2"}})), HasSubstr("PET_NODE_RANK=2"));
  EXPECT_THAT(error(0, with(pet, {{"PET_NPROC_PER_NODE", "many"}})), HasSubstr("PET_NPROC_PER_NODE=many"));
  EXPECT_EQ(read_launch(0, {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}}).source, "single process");
}

TEST(Launch, HostLists) {
  const auto hosts = [](const std::string& list) { return join(expand_hosts("L", list), " "); };
  EXPECT_EQ(hosts("a"), "a");
  EXPECT_EQ(hosts("gpu[01-03,7],head"), "gpu01 gpu02 gpu03 gpu7 head");
  EXPECT_EQ(hosts("r[1-2]n[9-10]x"), "r1n9x r1n10x r2n9x r2n10x");
  EXPECT_EQ(hosts("n[098-101]"), "n098 n099 n100 n101");
  for (const std::string bad : {"", ",", "a[", "a]", "a[]", "a[1-]", "a[2-1]", "a[[1]]", "a[1,]", "a[1-9999999]",
                                "a[1-99999][1-99999]", "a[-1]", "a[99999999999999999999]"}) {
    EXPECT_THROW(expand_hosts("L", bad), Error) << bad;
  }
}

TEST(Launch, TaskLists) {
  EXPECT_EQ(expand_tasks("L", "8(x2),4"), (std::vector<std::int64_t>{8, 8, 4}));
  EXPECT_EQ(expand_tasks("L", "2"), (std::vector<std::int64_t>{2}));
  EXPECT_TRUE(expand_tasks("L", "").empty());
  for (const std::string bad : {"x", "2(x", "2(x)", "2(x0)", "0", "2(x3", "2,,3", "2(x99999999999)"}) {
    EXPECT_THROW(expand_tasks("L", bad), Error) << bad;
  }
}

TEST(Launch, PortsOfJobsAreBelowTheEphemeralRange) {
  for (const std::string job : {"0", "123456", "99999999", "name", ""}) {
    EXPECT_GE(port_of_job(job), 10000) << job;
    EXPECT_LT(port_of_job(job), 30000) << job;
  }
  EXPECT_NE(port_of_job("1"), port_of_job("2"));
}

}  // namespace
}  // namespace shale

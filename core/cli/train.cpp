#include <cstdio>
#include <filesystem>

#include "core/base/error.h"
#include "core/cli/commands.h"
#include "core/comm/error_file.h"
#include "core/comm/first_cause.h"
#include "core/comm/launcher.h"
#include "core/comm/world.h"
#include "core/config/launch.h"
#include "core/device/cpu_pool.h"
#include "core/loader/backend.h"
#include "core/loader/plugins.h"
#include "core/train/loop.h"

namespace shale {
namespace {

RunContext run_context(const Config& config, const World& world) {
  RunContext context;
  context.rank = world.rank(), context.world = world.size(), context.local_rank = world.local_rank();
  context.seed = static_cast<std::uint64_t>(config.debug.seed);
  context.scratch_root = config.scratch_dir;
  context.wait_limit = config.comm.train_timeout_seconds;
  return context;
}

// Installed it lies with the plugins' parent, in a build tree beside the program.
std::string cuda_folder() {
  const auto installed = std::filesystem::path(binary_folder()) / ".." / "lib" / "shale";
  return std::filesystem::exists(installed / kCudaLibrary) ? installed.string() : binary_folder() + "/lib";
}

// Groups that live where the run computes: over Gloo on the CPU, over NCCL on GPUs.
GroupMaker group_maker(const Config& config, World& world) {
  if (config.training.device == "cpu")
    return [&world](const Partition& p, const std::string& name) { return world.group(p, name); };
  const auto library = open_cuda_library(cuda_folder());
  const double timeout = config.comm.train_timeout_seconds;
  const DeviceGroupMaker make = [library, timeout](c10d::Store& store, int rank, int size, const std::string& name) {
    return std::unique_ptr<Group>(library.group({&store, rank, size, name, timeout}));
  };
  return [&world, make](const Partition& p, const std::string& name) { return world.device_group(p, name, make); };
}

// A rank from start to end. The configuration was read before any rank existed.
int rank_main(const Config& config, const Launch& launch) {
  install_cpu_pool();
  const Log log(launch.rank);
  const auto world = World::join(launch);
  try {
    const auto context = run_context(config, *world);
    const auto plugins = load_plugins_together(world->everyone(), config, installed_plugins(), log, &context);
    const auto device = open_device(config.training.device, launch.local_rank, cuda_folder());
    return train({config, log, *world, *plugins, *device, group_maker(config, *world), launch.step_told});
  } catch (...) {
    rethrow_first_cause(*world);
  }
}

// Without a launcher of ours, whoever started this rank reads its error from standard error and from a file.
int run_alone(const Config& config, const Launch& launch) {
  try {
    return rank_main(config, launch);
  } catch (const Error& e) {
    write_error_file(launch.error_file, e, launch.rank);
    throw;
  }
}

}  // namespace

int train_command(const TrainArguments& args) {
  auto launch = read_launch(args.nproc);
  const auto config = read_config(args.file, args.overrides, launch.world);
  if (args.print_config) {
    std::fputs(print_config(config).c_str(), stdout);
    return 0;
  }
  // Before any rank exists: what is wrong with a plugin or its options is said here, once.
  load_plugins(config, installed_plugins(), Log(0, Log::Level::error));
  launch.init_timeout = config.comm.init_timeout_seconds, launch.timeout = config.comm.train_timeout_seconds;
  if (launch.spawn > 0) return launch_local(launch, [&](const Launch& l) { return rank_main(config, l); });
  return run_alone(config, launch);
}

}  // namespace shale

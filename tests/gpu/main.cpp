// shale-gpu-check: is this build of shale right on the GPUs of this machine? README.md beside it.
#include <cstdio>
#include <filesystem>
#include <set>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/comm/launcher.h"
#include "core/device/cpu_pool.h"
#include "tests/gpu/check.h"
#include "tests/gpu/process.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr double kLimit = 900;  // seconds for one check
constexpr int kNoGpu = 77;      // what ctest takes for "skipped"
constexpr const char* kUsage =
    "shale-gpu-check [--list] [--on-cpu] [--libraries FOLDER] [NAME ...]\n"
    "  NAME: only checks whose names begin so\n"
    "  --on-cpu: try the checks themselves on the CPU, without a GPU\n"
    "  --libraries: where libshale_cuda.so lies, else lib/ beside this program\n";

struct Arguments {
  bool list = false, on_cpu = false, help = false;
  std::string folder, libraries;
  std::vector<std::string> names;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments a;
  a.folder = fs::read_symlink("/proc/self/exe").parent_path().string();
  a.libraries = a.folder + "/lib";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list")
      a.list = true;
    else if (word == "--on-cpu")
      a.on_cpu = true;
    else if (word == "--libraries" && i + 1 < argc)
      a.libraries = argv[++i];
    else if (word.starts_with("-"))
      a.help = true;
    else
      a.names.push_back(word);
  }
  return a;
}

Checks all_checks() {
  Checks checks;
  add_device_checks(checks);
  add_ops_checks(checks);
  add_optim_checks(checks);
  add_stream_checks(checks);
  add_nccl_checks(checks);
  add_engine_checks(checks);
  add_program_checks(checks);
  return checks;
}

bool chosen(const Arguments& a, const Check& check) {
  bool any = a.names.empty();
  for (auto& name : a.names) any |= check.name.starts_with(name);
  return any;
}

// On a machine with none the text says why and the code is kNoGpu.
Ended count_gpus(const Arguments& a) {
  return run_forked(kLimit, [&]() -> std::pair<int, std::string> {
    try {
      const auto device = open_device("cuda", 0, a.libraries);
      return {0, str(static_cast<int>(c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount()))};
    } catch (const Error& e) {
      return {std::string(e.what()).starts_with("no GPU is visible") ? kNoGpu : 1, e.what()};
    }
  });
}

std::pair<int, std::string> run_alone(const Arguments& a, const Check& check) {
  install_cpu_pool();
  const auto device = open_device(a.on_cpu ? "cpu" : "cuda", 0, a.libraries);
  CudaLibrary library;
  if (!a.on_cpu) library = open_cuda_library(a.libraries);
  Bench bench{*device, a.on_cpu ? nullptr : &library, nullptr, a.folder + "/shale"};
  check.run(bench);
  return {0, ""};
}

// The launcher knows errors of shale; what a check found is one of them.
void run_named(const Check& check, Bench& bench) {
  try {
    check.run(bench);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(Code::numeric, "rank ", bench.world->rank(), ": ", e.what());
  }
}

std::pair<int, std::string> run_pair(const Arguments& a, const Check& check) {
  Launch launch;
  launch.world = launch.local_world = launch.spawn = 2;
  launch.init_timeout = launch.timeout = 120;
  std::string told;
  LauncherOptions options;
  options.print = [&](const std::string& line) { told = line; };
  const int code = launch_local(
      launch,
      [&](const Launch& mine) {
        install_cpu_pool();
        const auto world = World::join(mine);
        const auto device = open_device("cuda", mine.local_rank, a.libraries);
        const auto library = open_cuda_library(a.libraries);
        Bench bench{*device, &library, world.get(), a.folder + "/shale"};
        run_named(check, bench);
        return 0;
      },
      options);
  return {code, told};
}

// Runs of the program start their own ranks.
bool starts_ranks(const Check& check) { return check.needs == Needs::two_gpus && !check.name.starts_with("program."); }

std::string why_not(const Arguments& a, const Check& check, int gpus) {
  if (a.on_cpu && check.needs != Needs::nothing) return "needs a GPU";
  if (!a.on_cpu && check.needs == Needs::two_gpus && gpus < 2) return "needs 2 GPUs";
  return "";
}

std::string reason(const Ended& ended) {
  if (ended.code == -1) return str("not over after ", kLimit, " s");
  if (ended.text.empty()) return str("ended with code ", ended.code);
  return ended.text.substr(0, ended.text.find('\n'));
}

int run_checks(const Arguments& a, const Checks& checks, int gpus) {
  int passed = 0, failed = 0, skipped = 0;
  for (auto& check : checks) {
    if (!chosen(a, check)) continue;
    if (const auto why = why_not(a, check, gpus); !why.empty()) {
      std::printf("skip %s: %s\n", check.name.c_str(), why.c_str());
      ++skipped;
      continue;
    }
    const double start = now();
    const auto ended =
        run_forked(kLimit, [&] { return starts_ranks(check) ? run_pair(a, check) : run_alone(a, check); });
    if (ended.code == 0)
      std::printf("pass %s (%.1f s)\n", check.name.c_str(), now() - start), ++passed;
    else
      std::printf("FAIL %s: %s\n", check.name.c_str(), reason(ended).c_str()), ++failed;
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed > 0 || passed + skipped == 0 ? 1 : 0;
}

int list(const Checks& checks) {
  std::set<std::string> names;
  for (auto& check : checks) {
    const char* needs = check.needs == Needs::nothing ? "" : check.needs == Needs::gpu ? " (a GPU)" : " (2 GPUs)";
    std::printf("%s%s\n", check.name.c_str(), needs);
    if (!check.run || !names.insert(check.name).second) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace shale

int main(int argc, char** argv) {
  using namespace shale;
  const auto arguments = read_arguments(argc, argv);
  if (arguments.help) return std::fputs(kUsage, stderr), 2;
  try {
    const auto checks = all_checks();
    if (arguments.list) return list(checks);
    if (arguments.on_cpu) return run_checks(arguments, checks, 0);
    const auto gpus = count_gpus(arguments);
    if (gpus.code == kNoGpu) return std::puts(gpus.text.c_str()), kNoGpu;
    if (gpus.code != 0) return std::printf("FAIL library: %s\n", reason(gpus).c_str()), 1;
    std::printf("%s GPU(s)\n", gpus.text.c_str());
    return run_checks(arguments, checks, std::stoi(gpus.text));
  } catch (const std::exception& e) {
    return std::printf("FAIL shale-gpu-check: %s\n", e.what()), 1;
  }
}

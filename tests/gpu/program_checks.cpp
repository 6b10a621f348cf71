// The program itself: short runs on the device against the same runs on the CPU, and a snapshot on the way.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/gpu/check.h"
#include "tests/gpu/process.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr double kSeconds = 240;  // for one run
constexpr int kSteps = 6;

// A folder that is gone with the check.
struct Scratch {
  Scratch() {
    std::string name = (fs::temp_directory_path() / "shale-gpu-check-XXXXXX").string();
    expect(mkdtemp(name.data()) != nullptr, "no folder can be made in ", fs::temp_directory_path().string());
    path = name;
    std::ofstream text(path + "/text.txt");
    for (int i = 0; i < 4000; ++i) text << "line " << i * i % 97 << " of a text to learn from\n";
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

struct Settings {
  std::string name, device, precision = "uniform", sharding = "full_shard", more;
  int steps = kSteps, ranks = 1;
};

std::string write_config(const Scratch& scratch, const Settings& s) {
  const std::string path = scratch.path + "/" + s.name + ".toml";
  std::ofstream(path) << "[job]\ndump_folder = \"" << scratch.path << "/" << s.name << "\"\n"
                      << "[training]\ndataset = \"text\"\ndataset_path = \"" << scratch.path << "/text.txt\"\n"
                      << "seq_len = 64\nlocal_batch_size = 2\nsteps = " << s.steps << "\ndevice = \"" << s.device
                      << "\"\n[optimizer]\nlr = 1e-4\n[lr_scheduler]\nwarmup_steps = 1\ntotal_steps = " << kSteps
                      << "\n[sharding]\nplugin = \"" << s.sharding << "\"\n[precision]\nplugin = \"" << s.precision
                      << "\"\n"
                      << s.more;
  return path;
}

// Losses of all steps in metrics.jsonl, as far as the run has come.
std::vector<double> losses(const std::string& folder) {
  std::vector<double> out;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto key = line.find("\"loss\":");
    if (key != std::string::npos && line.find("\"grad_norm\"") != std::string::npos)
      out.push_back(std::stod(line.substr(key + 7)));
  }
  return out;
}

std::vector<double> train(Bench& b, const Scratch& scratch, const Settings& s,
                          const std::vector<std::string>& words = {}) {
  std::vector<std::string> all{b.program, "train", write_config(scratch, s), "--nproc", str(s.ranks)};
  all.insert(all.end(), words.begin(), words.end());
  const auto ended = run_program(kSeconds, all);
  const auto last = ended.text.find_last_not_of('\n');
  const auto line = ended.text.rfind('\n', last == std::string::npos ? 0 : last);
  expect(ended.code == 0, "shale train ended with ", ended.code, ": ",
         ended.text.substr(line == std::string::npos ? 0 : line + 1));
  return losses(scratch.path + "/" + s.name);
}

void compare(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  expect(wanted.size() == kSteps && found.size() == wanted.size(), "losses of ", found.size(), " and ", wanted.size(),
         " steps instead of ", kSteps);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    expect(std::abs(found[i] / wanted[i] - 1) <= tolerance, "the loss of step ", i + 1, " is ", found[i],
           " instead of ", wanted[i]);
}

std::string device_of(const Bench& b) { return b.cuda != nullptr ? "cuda" : "cpu"; }

void run(Bench& b, Settings s, double tolerance) {
  const Scratch scratch;
  Settings reference = s;
  reference.name = "cpu", reference.device = "cpu", reference.precision = "uniform";
  s.name = "here", s.device = device_of(b);
  compare(train(b, scratch, s), train(b, scratch, reference), tolerance);
}

// Stopped after half of the steps and resumed from the snapshot, against the run in one go.
void resume(Bench& b, const std::string& sharding) {
  const Scratch scratch;
  Settings s;
  s.name = "whole", s.device = device_of(b), s.sharding = sharding;
  const auto wanted = train(b, scratch, s);
  s.name = "parts", s.more = "[checkpoint]\nenable = true\nresume = \"auto\"\n";
  s.steps = kSteps / 2;
  train(b, scratch, s);
  expect(fs::exists(scratch.path + "/parts/checkpoints/step-00000003"), "there is no snapshot of step 3");
  s.steps = kSteps;
  compare(train(b, scratch, s), wanted, 1e-4);
}

// A snapshot made on the device, read by a run on the CPU.
void to_cpu(Bench& b) {
  const Scratch scratch;
  Settings s;
  s.name = "whole", s.device = "cpu";
  const auto wanted = train(b, scratch, s);
  s.name = "moved", s.device = device_of(b), s.more = "[checkpoint]\nenable = true\nresume = \"auto\"\n";
  s.steps = kSteps / 2;
  train(b, scratch, s);
  s.device = "cpu", s.steps = kSteps;
  compare(train(b, scratch, s), wanted, 1e-3);
}

}  // namespace

void add_program_checks(Checks& checks) {
  const auto add = [&](const std::string& name, const Settings& s, double tolerance) {
    const Needs needs = s.ranks == 1 ? Needs::nothing : Needs::two_gpus;
    checks.push_back({"program." + name, needs, [s, tolerance](Bench& b) { run(b, s, tolerance); }});
  };
  Settings s;
  add("float32", s, 1e-3);
  s.sharding = "no_shard", s.more = "[activation_checkpoint]\nmode = \"full\"\n";
  add("checkpointing", s, 1e-3);
  s = {};
  s.precision = "bf16_mixed";
  add("bf16_mixed", s, 3e-2);
  checks.push_back({"program.resume.full_shard", Needs::nothing, [](Bench& b) { resume(b, "full_shard"); }});
  checks.push_back({"program.resume.zero2", Needs::nothing, [](Bench& b) { resume(b, "zero2"); }});
  checks.push_back({"program.snapshot_to_cpu", Needs::nothing, to_cpu});
  for (std::string sharding : {"full_shard", "shard_grad_op", "hybrid_shard"}) {
    Settings two;
    two.ranks = 2, two.sharding = sharding;
    add("two." + sharding, two, 1e-3);
  }
}

}  // namespace shale

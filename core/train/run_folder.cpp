#include "core/train/run_folder.h"

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/checkpoint/snapshot.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

bool holds_a_run(const RunFolder& f) {
  return fs::exists(f.path + "/metrics.jsonl") || fs::exists(f.path + "/config.toml") || fs::exists(f.checkpoints);
}

// Only what a run of ours writes: other files in the folder are somebody else's.
void remove_run(const RunFolder& f) {
  for (auto name : {"metrics.jsonl", "config.toml", "plugins.json"}) fs::remove(f.path + "/" + name);
  fs::remove_all(f.checkpoints);
}

std::string newest(const std::string& checkpoints) {
  const auto all = list_snapshots(checkpoints);
  return all.empty() ? "" : all.back().path;
}

std::string decide(const RunFolder& f, const Config& config) {
  const auto& resume = config.checkpoint.resume;
  if (resume == "auto") return newest(f.checkpoints);
  if (resume != "none") {
    if (format_of(resume).empty())
      fail(Code::checkpoint, config.origin("checkpoint.resume").text, ": [checkpoint] resume = \"", resume,
           "\" is not a complete snapshot; give a step-... folder, or \"auto\"");
    return resume;
  }
  if (!holds_a_run(f)) return "";
  if (!config.job.overwrite)
    fail(Code::config, config.origin("job.dump_folder").text, ": [job] dump_folder ", f.path,
         " holds an earlier run; set checkpoint.resume = \"auto\" to go on with it, job.overwrite = true to delete ",
         "it, or choose another folder");
  remove_run(f);
  return "";
}

}  // namespace

RunFolder open_run_folder(Group& everyone, const Config& config) {
  RunFolder f;
  f.path = fs::absolute(config.job.dump_folder).lexically_normal().string();
  f.checkpoints = (fs::path(f.path) / config.checkpoint.folder).string();
  std::string answer;  // "+path" or "!code text", so that every rank ends alike
  if (everyone.rank() == 0) {
    try {
      answer = "+" + decide(f, config);
      fs::create_directories(f.path);
    } catch (const Error& e) {
      answer = str("!", static_cast<int>(e.code()), " ", e.what());
    } catch (const fs::filesystem_error& e) {
      answer = str("!", static_cast<int>(Code::io), " [job] dump_folder ", f.path, ": ", e.code().message());
    }
  }
  answer = all_gather_text(everyone, answer).front();
  if (answer.front() == '!') {
    const auto blank = answer.find(' ');
    throw Error(static_cast<Code>(std::stoi(answer.substr(1, blank - 1))), answer.substr(blank + 1));
  }
  f.resume_from = answer.substr(1);
  return f;
}

void write_run_files(const RunFolder& f, const Config& config, const std::string& plugins_json) {
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream out(f.path + "/" + name, std::ios::trunc);
    out << text;
    if (!out.flush()) fail(Code::io, f.path, "/", name, ": cannot be written");
  };
  write("config.toml", config.text);
  write("plugins.json", plugins_json);
}

}  // namespace shale

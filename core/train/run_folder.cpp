#include "core/train/run_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

// The snapshots by name, also damaged ones, and what a save or deletion left behind. Not what others put there.
std::vector<std::string> snapshot_folders(const RunFolder& f, std::uint64_t after = 0) {
  std::vector<std::string> out;
  if (!fs::is_directory(f.checkpoints)) return out;
  for (auto& entry : fs::directory_iterator(f.checkpoints)) {
    const auto name = entry.path().filename().string();
    const auto step = step_of_name(name);
    if (entry.is_directory() && (step ? *step > after : after == 0 && is_left_over(name))) out.push_back(entry.path());
  }
  return out;
}

bool holds_a_run(const RunFolder& f) {
  return fs::exists(f.path + "/metrics.jsonl") || fs::exists(f.path + "/config.toml") || !snapshot_folders(f).empty();
}

// A run must not begin in a folder that holds another: their snapshots and metrics would mix.
void begin_anew(RunFolder& f, const Config& config) {
  if (!holds_a_run(f)) return;
  if (!config.job.overwrite)
    fail(Code::config, config.origin("job.dump_folder").text, ": [job] dump_folder ", f.path,
         " holds an earlier run; set checkpoint.resume = \"auto\" to go on with it, job.overwrite = true to delete ",
         "it, or choose another folder");
  for (auto name : {"metrics.jsonl", "config.toml", "plugins.json"}) f.doomed.push_back(f.path + "/" + name);
  for (auto& folder : snapshot_folders(f)) f.doomed.push_back(folder);
}

// Going back in a run: its later snapshots would be taken for the newest of the new branch.
void go_back(RunFolder& f, const Config& config, std::uint64_t step) {
  const auto later = snapshot_folders(f, step);
  if (!later.empty() && !config.job.overwrite)
    fail(Code::config, config.origin("checkpoint.resume").text, ": [checkpoint] resume goes back to step ", step,
         ", but ", f.checkpoints, " holds ", later.size(),
         " later snapshot(s); set job.overwrite = true to delete them,", " or choose another dump_folder");
  f.doomed = later;
}

// Passing over a damaged snapshot would lose steps without a word, and end where the run reaches that step again.
std::string newest(const RunFolder& f, const Config& config) {
  const auto whole = list_snapshots(f.checkpoints);
  const auto broken = snapshot_folders(f, whole.empty() ? 0 : whole.back().step);
  for (auto& folder : broken)
    if (step_of_name(fs::path(folder).filename().string()))
      fail(Code::checkpoint, config.origin("checkpoint.resume").text, ": [checkpoint] resume = \"auto\": ", folder,
           " is newer than every whole snapshot and no whole one itself; move it away to go on from ",
           whole.empty() ? "the beginning" : whole.back().path);
  return whole.empty() ? "" : whole.back().path;
}

std::string decide(RunFolder& f, const Config& config) {
  std::error_code none;
  if (fs::equivalent(config.file, f.path + "/config.toml", none))
    fail(Code::config, config.origin("job.dump_folder").text, ": [job] dump_folder ", f.path,
         " is where the configuration ", config.file, " is, which the run would overwrite; choose another folder");
  const auto& resume = config.checkpoint.resume;
  if (resume == "auto") return newest(f, config);
  if (resume == "none") return begin_anew(f, config), "";
  const fs::path snapshot = fs::absolute(resume).lexically_normal() / "";  // "a/step-1" and "a/step-1/" alike
  const auto path = snapshot.parent_path();
  const auto step = step_of_name(path.filename().string());
  if (!fs::is_directory(path) || format_of(path.string()).empty() || !step)
    fail(Code::checkpoint, config.origin("checkpoint.resume").text, ": [checkpoint] resume = \"", resume,
         "\" is not a complete snapshot; give a step-... folder, or \"auto\"");
  if (fs::equivalent(path.parent_path(), f.checkpoints, none))
    go_back(f, config, *step);
  else
    begin_anew(f, config);
  return path.string();
}

// A network file system may show a new file late.
bool appears(const std::string& path) {
  constexpr double kLimit = 5;  // seconds
  for (const double end = now() + kLimit;; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    std::error_code none;
    if (fs::exists(path, none)) return true;
    if (now() >= end) return false;
  }
}

// All ranks write into one snapshot. Hosts that do not see the same folder would find out at the first one only.
void check_shared(Group& everyone, const RunFolder& f, const Config& config) {
  std::string mark;
  if (everyone.rank() == 0) {
    mark = str(f.path, "/.seen-by-all-", std::random_device{}());
    if (!std::ofstream(mark)) mark.clear();  // its metrics will not be written either, which is told then
  }
  mark = all_gather_text(everyone, mark).front();
  if (mark.empty()) return;
  const auto seen = all_gather_text(everyone, appears(mark) ? "yes" : "no");
  std::error_code none;
  if (everyone.rank() == 0) fs::remove(mark, none);
  for (std::size_t r = 0; r < seen.size(); ++r)
    if (seen[r] != "yes")
      fail(Code::config, config.origin("job.dump_folder").text, ": [job] dump_folder ", f.path, " of rank ", r,
           " is not that of rank 0; snapshots need one folder that all hosts see: choose one on storage they share, ",
           "or set checkpoint.enable = false");
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
  if (config.checkpoint.enable) check_shared(everyone, f, config);
  return f;
}

void delete_doomed(const RunFolder& f) {
  for (auto& path : f.doomed) {
    std::error_code bad;
    fs::remove_all(path, bad);
    if (bad) fail(Code::io, path, ": cannot be deleted: ", bad.message(), "; choose another job.dump_folder");
  }
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  errno = 0;
  std::ofstream out(temporary, std::ios::trunc);
  out << text;
  out.close();
  if (out && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const std::string reason = std::strerror(errno);
  std::remove(temporary.c_str());
  fail(Code::io, path, ": cannot be written: ", reason, "; free space or choose another job.dump_folder");
}

void write_run_files(const RunFolder& f, const Config& config, const std::string& plugins_json) {
  write_whole(f.path + "/config.toml", config.text);
  write_whole(f.path + "/plugins.json", plugins_json);
}

}  // namespace shale

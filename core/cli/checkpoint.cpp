// shale checkpoint inspect|verify|convert.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/snapshot.h"
#include "core/cli/commands.h"
#include "core/loader/inspect.h"
#include "core/loader/plugins.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<CheckpointFormat> format_named(const std::string& id) {
  return load_format(id, installed_plugins(), Log());
}

std::string format_of_snapshot(const std::string& folder) {
  const auto id = format_of(folder);
  if (id.empty())
    fail(Code::checkpoint, folder, ": no complete snapshot (no readable manifest.json); give a step-... folder");
  return id;
}

// The installed format that knows a folder of some other program best.
std::unique_ptr<CheckpointFormat> format_of_foreign(const std::string& path) {
  const auto folder = Folder::for_reading(path);
  std::unique_ptr<CheckpointFormat> best;
  int most = 0;
  std::vector<std::string> names;
  for (auto& file : list_plugins(installed_plugins()))
    for (auto& d : file.descriptors) {
      if (d.kind != "checkpoint" || !file.problem.empty() || file.shadowed) continue;
      auto format = format_named(file.path);
      names.push_back(d.id);
      if (const int score = format->probe(*folder); score > most) most = score, best = std::move(format);
    }
  if (!best)
    fail(Code::checkpoint, path, ": is neither a snapshot nor a folder of one of the formats ", join(names, ", "));
  return best;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void tell_progress(std::uint64_t done, std::uint64_t all) {
  if (!isatty(STDERR_FILENO)) return;
  std::fprintf(stderr, "\r%s of %s%s", human_bytes(static_cast<double>(done)).c_str(),
               human_bytes(static_cast<double>(all)).c_str(), done == all ? "\n" : "");
}

}  // namespace

int checkpoint_inspect_command(const std::string& folder) {
  const auto format = format_named(format_of_snapshot(folder));
  std::fputs(inspect_snapshot(folder, *format).c_str(), stdout);
  return 0;
}

int checkpoint_verify_command(const std::string& folder) {
  const auto format = format_named(format_of_snapshot(folder));
  SnapshotReader::open(folder, *format);  // names, sizes, bounds, coverage
  const auto wrong = verify_snapshot(folder);
  if (!wrong.empty()) {
    for (auto& line : wrong) std::fprintf(stderr, "%s\n", line.c_str());
    fail(Code::checkpoint, folder, ": ", wrong.size(), " file(s) are not as they were written; use another snapshot");
  }
  std::printf("%s: every file is as it was written\n", folder.c_str());
  return 0;
}

int checkpoint_convert_command(const ConvertArguments& args) {
  const bool ours = !format_of(args.from).empty();
  const auto old = ours ? format_named(format_of(args.from)) : format_of_foreign(args.from);
  const auto reader = ours ? SnapshotReader::open(args.from, *old) : SnapshotReader::open_foreign(args.from, *old);
  ConvertOptions options;
  options.weights_only = args.weights_only;
  if (!args.dtype.empty()) options.dtype = dtype_of_name(args.dtype, "--dtype");
  options.model_json = ours ? reader->model_json() : text_of(args.from + "/config.json");
  options.assets = args.assets.empty() ? args.from : args.assets;
  options.progress = tell_progress;
  const auto left_out = convert(*reader, *format_named(args.format), args.to, options);
  std::printf("%s: %s, from %s", args.to.c_str(), args.format.c_str(), args.from.c_str());
  if (!left_out.empty()) std::printf("; left out %zu item(s) that are no weights", left_out.size());
  std::printf("\n");
  return 0;
}

}  // namespace shale

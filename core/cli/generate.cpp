#include <cstdio>
#include <filesystem>

#include "core/base/error.h"
#include "core/checkpoint/snapshot.h"
#include "core/cli/commands.h"
#include "core/device/cpu_pool.h"
#include "core/loader/plugins.h"
#include "core/train/generate.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

std::string newest(const std::string& checkpoints, const std::string& from) {
  const auto all = list_snapshots(checkpoints);
  if (all.empty())
    fail(Code::checkpoint, from, ": no complete snapshot in ", checkpoints,
         "; train with checkpoint.enable = true first");
  return all.back().path;
}

// A file is a run's configuration, a folder a snapshot, a run or a Hugging Face model.
std::string find_folder(const std::string& from) {
  if (fs::is_regular_file(from)) {
    const auto config = read_config(from, {}, 0);
    return newest((fs::path(config.job.dump_folder) / config.checkpoint.folder).string(), from);
  }
  if (!fs::is_directory(from)) fail(Code::input, from, ": no such file or folder");
  if (!format_of(from).empty() || fs::exists(from + "/config.json")) return from;
  const auto written = from + "/config.toml";  // a run may have another name for the folder of its snapshots
  const auto folder = fs::exists(written) ? read_config(written, {}, 0).checkpoint.folder : "checkpoints";
  return newest((fs::path(from) / folder).string(), from);
}

std::vector<std::int64_t> read_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (auto& word : split(text, ',')) {
    std::size_t used = 0;
    try {
      ids.push_back(std::stoll(word, &used));
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != word.size()) fail(Code::config, "--ids: \"", word, "\" is not a token id");
  }
  if (ids.empty()) fail(Code::config, "--ids: at least one token id is needed");
  return ids;
}

std::vector<std::int64_t> bytes_of(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (unsigned char c : text) ids.push_back(c);
  if (ids.empty()) fail(Code::config, "--prompt: at least one byte is needed");
  return ids;
}

}  // namespace

int generate_command(const GenerateArguments& args) {
  install_cpu_pool();
  const Log log;
  GenerateOptions o;
  o.snapshot = find_folder(args.from);
  o.prompt = args.ids.empty() ? bytes_of(args.prompt) : read_ids(args.ids);
  o.max_new_tokens = args.tokens, o.temperature = args.temperature, o.top_k = args.top_k;
  o.seed = static_cast<std::uint64_t>(args.seed);
  const auto id = format_of(o.snapshot);
  const auto format = id.empty() ? nullptr : load_format(id, installed_plugins(), log);
  if (args.ids.empty()) std::fputs(args.prompt.c_str(), stdout);
  generate(o, format.get(), [&](std::int64_t token) {
    if (!args.ids.empty())
      std::printf("%lld ", static_cast<long long>(token));
    else if (token < 256)
      std::putchar(static_cast<int>(token));
    std::fflush(stdout);
  });
  std::putchar('\n');
  return 0;
}

}  // namespace shale

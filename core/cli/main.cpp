// The program: reads the command line, runs one sub-command, and turns an Error into one line and an exit code.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/cli/commands.h"
#include "core/config/config.h"

namespace shale {
namespace {

// "--training.steps=5" or "--training.steps 5": whatever CLI11 does not know and looks like section.key.
std::vector<Override> read_overrides(const std::vector<std::string>& words) {
  std::vector<Override> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const auto equals = word.find('=');
    const auto key = word.substr(0, equals);
    if (word.rfind("--", 0) != 0 || key.find('.') == std::string::npos)
      fail(Code::config, "command line: \"", word, "\" is not understood; settings are written --section.key=value, ",
           "see shale train --help");
    if (equals != std::string::npos)
      out.push_back({key.substr(2), word.substr(equals + 1)});
    else if (i + 1 < words.size())
      out.push_back({key.substr(2), words[++i]});
    else
      fail(Code::config, "command line: ", word, " needs a value: ", word, "=...");
  }
  return out;
}

void add_train(CLI::App& app, int& result) {
  auto* cmd = app.add_subcommand("train", "Train a model as a TOML file says");
  auto args = std::make_shared<TrainArguments>();
  cmd->add_option("file", args->file, "the run's configuration")->required();
  cmd->add_option("--nproc", args->nproc, "start this many ranks on this host")->check(CLI::Range(1, 4096));
  cmd->add_flag("--print-config", args->print_config, "print every setting with its origin, and stop");
  cmd->allow_extras();
  cmd->footer(
      "Any setting can be given as --section.key=value; it wins over SHALE_SECTION_KEY and the file.\n\n"
      "Example: shale train run.toml --nproc 2 --training.steps=100\n\n" +
      config_help());
  cmd->callback([cmd, args, &result] {
    args->overrides = read_overrides(cmd->remaining());
    result = train_command(*args);
  });
}

void add_generate(CLI::App& app, int& result) {
  auto* cmd = app.add_subcommand("generate", "Continue a text with a trained model");
  auto args = std::make_shared<GenerateArguments>();
  cmd->add_option("from", args->from, "run.toml, run folder, snapshot or Hugging Face folder")->required();
  cmd->add_option("--prompt", args->prompt, "text to continue, one token per byte");
  cmd->add_option("--ids", args->ids, "prompt as token ids, \"1,2,3\"; prints ids")->excludes("--prompt");
  cmd->add_option("--tokens", args->tokens, "how many to add")->check(CLI::Range(1, 1000000));
  cmd->add_option("--temperature", args->temperature, "0 = always the likeliest")->check(CLI::Range(0.0, 100.0));
  cmd->add_option("--top-k", args->top_k, "draw from the k likeliest; 0 = from all")->check(CLI::NonNegativeNumber);
  cmd->add_option("--seed", args->seed, "the same seed gives the same text")->check(CLI::NonNegativeNumber);
  cmd->footer("Example: shale generate run.toml --prompt \"In the beginning\" --tokens 300");
  cmd->callback([args, &result] { result = generate_command(*args); });
}

void add_plugin(CLI::App& app, int& result) {
  auto* plugin = app.add_subcommand("plugin", "Look at plugins")->require_subcommand(1);
  plugin->footer("Example: shale plugin list");
  auto json = std::make_shared<bool>(false);
  auto name = std::make_shared<std::string>();
  auto* list = plugin->add_subcommand("list", "Every plugin that can be named in a configuration");
  list->add_flag("--json", *json, "for programs");
  list->footer("Searched: the install's plugin folder, then SHALE_PLUGIN_PATH.\n\nExample: shale plugin list");
  list->callback([json, &result] { result = plugin_list_command(*json); });
  auto* info = plugin->add_subcommand("info", "What one plugin decides, and its options");
  info->add_option("plugin", *name, "a name, or a path to a .so")->required();
  info->add_flag("--json", *json, "for programs");
  info->footer("Example: shale plugin info full_shard");
  info->callback([name, json, &result] { result = plugin_info_command(*name, *json); });
}

void add_convert(CLI::App& checkpoint, int& result) {
  auto* cmd = checkpoint.add_subcommand("convert", "Write a snapshot or somebody else's folder in another format");
  auto args = std::make_shared<ConvertArguments>();
  cmd->add_option("from", args->from, "a step-... folder, or a folder of one of the formats")->required();
  cmd->add_option("to", args->to, "the new folder")->required();
  cmd->add_option("--format", args->format, "a checkpoint plugin, see shale plugin list")->required();
  cmd->add_option("--dtype", args->dtype, "of the weights: float32, bfloat16, ...");
  cmd->add_option("--assets", args->assets, "where tokenizer files are copied from; else from <from>");
  cmd->add_flag("--weights-only", args->weights_only, "leave out optimizer, progress and states of plugins");
  cmd->footer(
      "Tensor by tensor: only the largest one has to fit into memory.\n\n"
      "Example: shale checkpoint convert outputs/checkpoints/step-00000100 exported --format sharded");
  cmd->callback([args, &result] { result = checkpoint_convert_command(*args); });
}

void add_checkpoint(CLI::App& app, int& result) {
  auto* checkpoint = app.add_subcommand("checkpoint", "Look at snapshots")->require_subcommand(1);
  checkpoint->footer("Example: shale checkpoint inspect outputs/checkpoints/step-00000100");
  auto folder = std::make_shared<std::string>();
  auto* inspect = checkpoint->add_subcommand("inspect", "What a snapshot holds");
  inspect->add_option("folder", *folder, "a step-... folder")->required();
  inspect->footer("Example: shale checkpoint inspect outputs/checkpoints/step-00000100");
  inspect->callback([folder, &result] { result = checkpoint_inspect_command(*folder); });
  auto* verify = checkpoint->add_subcommand("verify", "Read all of a snapshot against its checksums");
  verify->add_option("folder", *folder, "a step-... folder")->required();
  verify->footer(
      "Exit code 4 when something is missing or changed.\n\n"
      "Example: shale checkpoint verify outputs/checkpoints/step-00000100");
  verify->callback([folder, &result] { result = checkpoint_verify_command(*folder); });
  add_convert(*checkpoint, result);
}

// CLI11 says only that a command is required when it does not know the word.
void refuse_unknown_command(const CLI::App* app, int argc, char** argv) {
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty()) return;
    std::vector<std::string> names;
    for (auto* command : commands) names.push_back(command->get_name());
    const auto at = std::find(names.begin(), names.end(), argv[i]);
    if (at == names.end())
      fail(Code::config, "command line: ", argv[i], " is not a command; there are ", join(names, ", "));
    app = commands[at - names.begin()];
  }
}

int run(int argc, char** argv) {
  CLI::App app("shale: trains transformer language models, sharded over ranks");
  app.require_subcommand(1);
  app.footer("Each command has --help of its own.\n\nExample: shale train run.toml --nproc 2");
  int result = 0;
  add_train(app, result);
  add_generate(app, result);
  add_plugin(app, result);
  add_checkpoint(app, result);
  auto* version = app.add_subcommand("version", "Versions of shale, its plugin ABI and LibTorch");
  version->footer("Example: shale version");
  version->callback([&result] { result = version_command(); });
  refuse_unknown_command(&app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    fail(Code::config, "command line: ", e.what(), "; see shale --help");
  }
  return result;
}

int report(Code code, const char* text) {
  std::fprintf(stderr, "shale: %s: %s\n", code_name(code), text);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace shale

int main(int argc, char** argv) {
  try {
    return shale::run(argc, argv);
  } catch (const shale::Error& e) {
    return shale::report(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return shale::report(shale::Code::io, "out of memory");
  } catch (const std::filesystem::filesystem_error& e) {
    const auto text = shale::str(e.path1().string(), ": ", e.code().message());
    return shale::report(shale::Code::io, text.c_str());
  } catch (const std::exception& e) {
    return shale::report(shale::Code::internal, e.what());
  }
}

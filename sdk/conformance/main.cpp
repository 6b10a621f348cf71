// shale-conform: runs every case on plugin files and says what is wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "checks.h"

namespace {

using namespace shale::conform;

constexpr const char* kUsage =
    "usage: shale-conform [--only NAME] [--in-process] [--list] [--option KEY=VALUE] [--tolerance X] FILE.so ...\n"
    "  --only NAME    this case only\n"
    "  --in-process   no child process, for a debugger\n"
    "  --list         the cases\n"
    "  --option K=V   an option of a sharding plugin, for the cases on simulated ranks; may come again\n"
    "  --tolerance X  for plugins that change the math: error over the largest number of a flat, 0.02 if not given\n"
    "exit status: 0 all passed, 1 something failed, 2 wrong use\n";

struct Wishes {
  std::string only;
  bool in_process = false, list = false;
  Given given;
  double tolerance = 0.02;
  std::vector<std::string> files;
};

bool read_option(const std::string& text, Given& given) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  given[text.substr(0, equals)] = text.substr(equals + 1);
  return true;
}

bool read_tolerance(const char* text, double& to) {
  char* end = nullptr;
  to = std::strtod(text, &end);
  return end != text && *end == '\0' && to >= 0;
}

bool read_arguments(int argc, char** argv, Wishes& w) {
  for (int k = 1; k < argc; ++k) {
    const std::string a = argv[k];
    if (a == "--only" && k + 1 < argc) {
      w.only = argv[++k];
    } else if (a == "--option" && k + 1 < argc) {
      if (!read_option(argv[++k], w.given)) return false;
    } else if (a == "--tolerance" && k + 1 < argc) {
      if (!read_tolerance(argv[++k], w.tolerance)) return false;
    } else if (a == "--in-process") {
      w.in_process = true;
    } else if (a == "--list") {
      w.list = true;
    } else if (a.starts_with("--")) {
      return false;
    } else {
      w.files.push_back(std::filesystem::absolute(a));
    }
  }
  return w.list || !w.files.empty();
}

int run(const Wishes& w) {
  constexpr const char* kOutcomes[] = {"pass", "FAIL", "CRASH", "TIMEOUT"};
  int ran = 0, bad = 0;
  for (auto& file : w.files)
    for (auto& check : checks()) {
      if (!w.only.empty() && w.only != check.name) continue;
      Subject subject(file);
      subject.given = w.given, subject.tolerance = w.tolerance;
      const Verdict v = w.in_process ? run_here(check, subject) : run_apart(check, subject);
      std::printf("%-8s%-13s%s\n", kOutcomes[static_cast<int>(v.outcome)], check.name, check.says);
      for (auto& problem : v.problems) std::printf("          %s\n", problem.c_str());
      std::fflush(stdout);
      ++ran, bad += v.outcome != Outcome::pass;
    }
  if (ran == 0) std::fprintf(stderr, "there is no case %s; --list names them\n", w.only.c_str());
  if (ran == 0) return 2;
  std::printf("%d of %d passed\n", ran - bad, ran);
  return bad == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Wishes w;
  if (!read_arguments(argc, argv, w)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (!w.list) return run(w);
  for (auto& check : checks()) std::printf("%-13s%s\n", check.name, check.says);
  return 0;
}

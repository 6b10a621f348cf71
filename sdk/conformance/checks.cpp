#include "checks.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>

namespace shale::conform {
namespace {

constexpr Check kChecks[] = {
    {"exports", "the file exports shale_plugin_entry_v1 and nothing else", check_exports},
    {"entry", "the entry returns the same table on every call", check_entry},
    {"other-major", "the entry reads only the frozen head of a host of another major", check_other_major},
    {"versions", "the versions of the table fit each other and this SDK", check_versions},
    {"descriptors", "ids, versions, texts, kinds and interface lists are well-formed", check_descriptors},
    {"options", "options have sound keys, types, bounds, and defaults within them", check_options},
    {"interfaces", "declared interfaces are complete, every other id gets NULL", check_interfaces},
    {"lifecycle", "instances come and go a thousand times, two live side by side", check_lifecycle},
    {"quiet", "entry and create start no thread, open no file, leave environment and folder alone", check_quiet},
    {"plans", "plans are legal and repeatable for several models and worlds, or refused with a reason", check_plans},
    {"bounds", "each option at each of its bounds gives a legal plan or names the option", check_bounds},
    {"newer-host", "longer structs and a higher minor change nothing", check_newer_host},
    {"refusals", "what the host refuses during a plan comes back as the answer, and nothing leaks", check_refusals},
    {"format", "a checkpoint format says what it can hold and writes no further than it may", check_format},
    {"round-trip", "what a format wrote from two writers, another instance reads back bit by bit", check_round_trip},
    {"damage", "cut and changed files end in a status or an index, never in a crash or a hang", check_damage},
    {"hooks", "hooks that are declared are there, and the plan's numbers go with them", check_hooks},
    {"gather", "own gathers write all of the weights, padding 0, and the same bits on all ranks", check_gather},
    {"reduce", "own reductions add the sum over the group to the shard", check_reduce},
    {"replicate", "own replica sums give the same bits on all replicas", check_replicate},
    {"not-finite", "a gradient that is not finite does not come out finite", check_not_finite},
    {"skipped", "the step after a skipped one is right again", check_skipped},
    {"lanes", "gathers and reductions of one instance may run at once", check_lanes},
    {"outer", "outer steps leave masters finite, and replicas equal", check_outer},
    {"repeat", "fresh instances give the same bits from the same numbers", check_repeat},
    {"faults", "whatever service fails, hooks of all ranks end with a status and leak nothing", check_faults},
};

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

[[noreturn]] void child(const Check& check, const Subject& subject, int fd) {
  const Verdict v = run_here(check, subject);
  std::string text;
  for (auto& problem : v.problems) text += problem + "\n";
  write_all(fd, text);
  _exit(v.outcome == Outcome::pass ? 0 : 1);
}

// Reads until the child closes its end; false when the time is over.
bool drain(int fd, double seconds, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  char block[4096];
  while (true) {
    const std::chrono::duration<double, std::milli> left = end - std::chrono::steady_clock::now();
    pollfd p{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&p, 1, static_cast<int>(left.count()) + 1) == 0) return false;
    const auto n = read(fd, block, sizeof block);
    if (n <= 0) return true;
    text.append(block, static_cast<std::size_t>(n));
  }
}

Problems lines(const std::string& text) {
  Problems out;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::span<const Check> checks() { return kChecks; }

Verdict run_here(const Check& check, const Subject& subject) {
  Verdict v;
  try {
    v.problems = check.run(subject);
  } catch (const std::exception& e) {
    v.problems.push_back(e.what());
  }
  v.outcome = v.problems.empty() ? Outcome::pass : Outcome::fail;
  return v;
}

Verdict run_apart(const Check& check, const Subject& subject, double seconds) {
  int ends[2];
  if (pipe(ends) != 0) return {Outcome::fail, {"no pipe for the child process"}};
  const pid_t pid = fork();
  if (pid < 0) return {Outcome::fail, {"no child process"}};
  if (pid == 0) {
    close(ends[0]);
    child(check, subject, ends[1]);
  }
  close(ends[1]);
  std::string text;
  const bool ended = drain(ends[0], seconds, text);
  close(ends[0]);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  Verdict v{Outcome::pass, lines(text)};
  if (!ended) {
    v.outcome = Outcome::timeout;
    v.problems.push_back("did not end within " + std::to_string(static_cast<int>(seconds)) + " s");
  } else if (WIFSIGNALED(status)) {
    v.outcome = Outcome::crash;
    v.problems.push_back(std::string("ended by signal ") + strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0) {
    v.outcome = WEXITSTATUS(status) == 1 && !v.problems.empty() ? Outcome::fail : Outcome::crash;
    if (v.problems.empty()) v.problems.push_back("exited with " + std::to_string(WEXITSTATUS(status)));
  }
  return v;
}

}  // namespace shale::conform

#include "core/comm/launcher.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/comm/net.h"
#include "core/comm/rank_report.h"

namespace shale {
namespace {

constexpr double kNever = 1e300;
constexpr double kLook = 0.5;  // seconds: the watch looks at its ranks at least this often

// Why a rank ended, if that says something about the run.
struct Cause {
  int exit_code = 0;
  bool secondary = false;
  double time = 0;
  std::string text;
};

struct Rank {
  int number = 0;
  pid_t pid = -1;
  OwnedFd report;
  bool alive = false;
};

// Signals the launcher takes from its queue while it watches; restored at the end, and in the children.
class Signals {
 public:
  Signals() {
    sigemptyset(&ours_);
    for (const int s : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&ours_, s);
    // Blocked, it would reach us even where it is ignored, as under nohup.
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&ours_, SIGHUP);
    sigprocmask(SIG_BLOCK, &ours_, &old_mask_);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;  // an inherited SIG_IGN would reap the ranks before we see how they ended
    sigaction(SIGCHLD, &standard, &old_child_);
  }
  ~Signals() { restore(); }
  void restore() const {
    sigaction(SIGCHLD, &old_child_, nullptr);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  int next(double seconds) const {  // the signal, or 0 after that time
    const auto whole = static_cast<time_t>(seconds);
    const timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    return std::max(0, sigtimedwait(&ours_, nullptr, &limit));
  }

 private:
  sigset_t ours_{}, old_mask_{};
  struct sigaction old_child_ {};
};

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  const std::string hint = signal == SIGKILL ? "; out of memory?" : "";
  return str("was killed by signal ", signal, " (SIG", name ? name : "?", hint, ")");
}

// The step each rank is in, 0 before the first: memory that the ranks share with the launcher.
class StepBoard {
 public:
  explicit StepBoard(int ranks) : bytes_(sizeof(Step) * static_cast<std::size_t>(ranks)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail(Code::io, "launcher: no memory to share with the ranks: ", std::strerror(errno));
    steps_ = static_cast<Step*>(memory);  // zeros, as an atomic 0 is
  }
  ~StepBoard() { munmap(steps_, bytes_); }
  StepBoard(const StepBoard&) = delete;
  StepBoard& operator=(const StepBoard&) = delete;

  std::atomic<std::int64_t>* of(int local) const { return steps_ + local; }
  std::string text(int local) const {
    const std::int64_t step = steps_[local].load();
    return step > 0 ? str(" in step ", step) : "";
  }

 private:
  using Step = std::atomic<std::int64_t>;
  static_assert(Step::is_always_lock_free);
  std::size_t bytes_;
  Step* steps_;
};

class Herd {
 public:
  Herd(const Launch& base, const std::function<int(const Launch&)>& rank_main, const LauncherOptions& options)
      : base_(base), rank_main_(rank_main), options_(options), steps_(base.local_world) {}
  ~Herd() { kill_all(); }

  int run();

 private:
  void start();
  void fork_rank(int local, const OwnedFd& listening, int parent);
  [[noreturn]] void be_rank(int local, const OwnedFd& listening, const OwnedFd& report);
  void reap();
  void ended(Rank&, int status);
  std::string late() const;
  std::string stopped() const;
  void on_signal(int signal);
  void keep_deadlines();
  void send_all(int signal) const;
  void kill_all();
  bool any_alive() const;
  int conclude() const;
  void print(const std::string& line) const;

  Launch base_;
  const std::function<int(const Launch&)>& rank_main_;
  const LauncherOptions& options_;
  StepBoard steps_;
  Signals signals_;
  std::vector<Rank> ranks_;
  std::vector<Cause> causes_;
  int left_by_signal_ = 0;  // the exit code of ranks that left in order after a signal
  int forwarded_ = 0;       // the signal handed on
  bool stopping_ = false;   // SIGTERM sent by us, so what ends now is no cause
  double stop_at_ = kNever, kill_at_ = kNever;
};

int Herd::run() {
  start();
  while (any_alive()) {
    const double next = std::clamp(std::min(stop_at_, kill_at_) - now(), 0.001, kLook);
    on_signal(signals_.next(next));
    reap();
    keep_deadlines();
  }
  return conclude();
}

void Herd::start() {
  OwnedFd listening;
  if (base_.rank == 0 && !base_.agent_store && base_.world > 1) {
    listening = listen_at(base_.master, base_.port);
    base_.port = port_of(listening);
  }
  std::fflush(nullptr);  // else every child writes what is buffered here again
  const int parent = getpid();
  for (int i = 0; i < base_.local_world; ++i) fork_rank(i, listening, parent);
}

void Herd::fork_rank(int local, const OwnedFd& listening, int parent) {
  Pipe pipe = make_pipe();
  const pid_t pid = fork();
  if (pid < 0) fail(Code::io, "launcher: cannot start rank ", base_.rank + local, ": ", std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);  // it died before the line above
    be_rank(local, listening, pipe.write);
  }
  ranks_.push_back({base_.rank + local, pid, std::move(pipe.read), true});
}

void Herd::be_rank(int local, const OwnedFd& listening, const OwnedFd& report) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the launcher only, which hands it on once
  std::signal(SIGTTOU, SIG_IGN);
  signals_.restore();
  ranks_.clear();
  Launch launch = base_;
  launch.rank = base_.rank + local;
  launch.local_rank = local;
  launch.step_told = steps_.of(local);
  launch.spawn = 0;
  if (launch.rank == 0) {
    launch.listen_fd = listening.get();
  } else if (listening) {
    close(listening.get());
  }
  const int code = run_reporting(report, [&] { return rank_main_(launch); });
  std::fflush(nullptr);
  _exit(code);  // not exit(): this is a copy of the launcher, whose clean-up is not ours to run
}

void Herd::reap() {
  for (Rank& rank : ranks_) {
    int status = 0;
    if (!rank.alive) continue;
    const pid_t got = waitpid(rank.pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) continue;
    rank.alive = false;
    ended(rank, got == rank.pid ? status : 0);
  }
}

void Herd::ended(Rank& rank, int status) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = signal != 0 ? 128 + signal : WEXITSTATUS(status);
  if (code == 0) {
    stop_at_ = std::min(stop_at_, now() + options_.leave_after);  // ranks are done at the same time
    return;
  }
  const auto report = read_report(rank.report);
  if (report) {
    const bool waited = report->code == Code::dist && !report->secondary;
    causes_.push_back(
        {code, report->secondary, report->time,
         str("[rank ", rank.number, "] ", code_name(report->code), ": ", report->text, waited ? stopped() : "")});
  } else if (code > 128 && (signal == 0 || signal == forwarded_)) {
    left_by_signal_ = code;
  } else if (!stopping_) {
    const std::string how = signal != 0 ? signal_text(signal) : str("ended with exit code ", code, " and said nothing");
    causes_.push_back({code, false, now(), str("rank ", rank.number, " ", how, steps_.text(rank.number - base_.rank))});
  }
  const bool in_order = !report && causes_.empty();
  stop_at_ = std::min(stop_at_, now() + (in_order ? options_.leave_after : options_.grace));
}

std::string Herd::late() const {
  const auto rank = std::ranges::find_if(ranks_, &Rank::alive);
  return str("rank ", rank->number, " was still there ", options_.leave_after, " s after another had done its work",
             stopped());
}

// Ranks that a signal has stopped, as the reason why others waited for them in vain.
std::string Herd::stopped() const {
  std::string out;
  for (const Rank& rank : ranks_) {
    siginfo_t info{};
    if (!rank.alive || waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WNOHANG | WNOWAIT) != 0) continue;
    if (info.si_pid == 0) continue;
    const char* name = sigabbrev_np(info.si_status);
    out += str("; rank ", rank.number, " was stopped by signal ", info.si_status, " (SIG", name ? name : "?", ")",
               steps_.text(rank.number - base_.rank));
  }
  return out;
}

void Herd::on_signal(int signal) {
  if (signal == 0 || signal == SIGCHLD) return;
  if (signal != forwarded_) {
    forwarded_ = signal;
    send_all(signal);
  } else if (signal == SIGINT) {
    print("interrupted again: ending the ranks without saving");
    stopping_ = true;
    left_by_signal_ = 128 + SIGINT;
    send_all(SIGKILL);
  }
}

void Herd::keep_deadlines() {
  if (!any_alive()) return;
  if (!stopping_ && now() >= stop_at_) {
    if (causes_.empty() && left_by_signal_ == 0)
      causes_.push_back({static_cast<int>(Code::dist), false, now(), late()});
    stopping_ = true;
    kill_at_ = now() + options_.kill_after;
    send_all(SIGTERM);
  }
  if (now() >= kill_at_) send_all(SIGKILL);
}

void Herd::send_all(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.alive) continue;
    kill(rank.pid, signal);
    if (signal == SIGKILL) kill(-rank.pid, signal);  // and what it started
  }
}

void Herd::kill_all() {
  send_all(SIGKILL);
  for (Rank& rank : ranks_) {
    if (rank.alive) waitpid(rank.pid, nullptr, 0);
  }
}

bool Herd::any_alive() const { return std::ranges::any_of(ranks_, &Rank::alive); }

int Herd::conclude() const {
  if (causes_.empty()) return left_by_signal_;
  const auto earlier = [](const Cause& a, const Cause& b) {
    return std::pair(a.secondary, a.time) < std::pair(b.secondary, b.time);
  };
  const Cause& first = *std::ranges::min_element(causes_, earlier);
  const auto message = [](const Cause& cause) { return cause.text.substr(cause.text.find("] ") + 1); };
  std::set<std::string> printed{message(first)};
  for (const Cause& cause : causes_) {
    if (!cause.secondary && printed.insert(message(cause)).second) print(cause.text);
  }
  print(first.text);
  return first.exit_code;
}

void Herd::print(const std::string& line) const {
  if (options_.print) return options_.print(line);
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace

int launch_local(const Launch& base, const std::function<int(const Launch&)>& rank_main,
                 const LauncherOptions& options) {
  check(base.spawn > 0 && base.local_world == base.spawn && base.rank + base.spawn <= base.world,
        "launch_local: ", base.spawn, " ranks from ", base.rank, " of ", base.world);
  return Herd(base, rank_main, options).run();
}

}  // namespace shale

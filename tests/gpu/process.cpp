#include "tests/gpu/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <tuple>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace shale {
namespace {

// The child's side of the pipe is `write`; it must end by _exit or exec.
Ended watch(double seconds, const std::function<void(int write)>& child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(Code::io, "no pipe for a child process");
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) fail(Code::io, "no process can be started");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    child(ends[1]);
    _exit(70);
  }
  close(ends[1]);
  Ended ended;
  const double limit = now() + seconds;
  char buffer[4096];
  for (ssize_t n = 1; n > 0;) {
    pollfd ready{ends[0], POLLIN, 0};
    const double left = limit - now();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left * 1e3) + 1) == 0) {
      kill(pid, SIGKILL);
      ended.code = -1;
      break;
    }
    n = read(ends[0], buffer, sizeof buffer);
    if (n > 0) ended.text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);  // the pipe is closed or it was killed, so it ends
  if (ended.code == 0) ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

void tell(int to, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto n = write(to, text.data() + done, text.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

// Ends without the destructors of the process: CUDA's are not for a fork to run, and a check is over anyway.
Ended run_forked(double seconds, const std::function<std::pair<int, std::string>()>& body) {
  return watch(seconds, [&](int write) {
    int code = 1;
    std::string text;
    try {
      std::tie(code, text) = body();
    } catch (const std::exception& e) {
      text = e.what();
    }
    tell(write, text);
    _exit(code);
  });
}

Ended run_program(double seconds, const std::vector<std::string>& words) {
  return watch(seconds, [&](int write) {
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    dup2(write, STDOUT_FILENO), dup2(write, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    tell(write, words[0] + " cannot be run");
    _exit(127);
  });
}

}  // namespace shale

#include "core/loader/inspect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/loader/descriptor.h"
#include "core/loader/inspect_json.h"
#include "core/loader/plugin_library.h"

namespace shale {
namespace {

constexpr const char* kCapabilities[] = {"cpu", "cuda", "changes_math", "needs_even_nodes"};
constexpr std::size_t kMostOutput = 16u << 20;

OptionFacts facts_of(const OptionSpec& o) {
  return {o.key, o.type_name(), o.fallback, o.range(), o.unit, o.help, o.required};
}

DescriptorFacts facts_of(const Descriptor& d) {
  DescriptorFacts f{kKinds[d.kind], d.id,         d.version, d.summary, d.vendor, d.license,
                    d.url,          d.interfaces, d.needs,   {},        {}};
  for (std::size_t bit = 0; bit < std::size(kCapabilities); ++bit)
    if (d.caps >> bit & 1) f.capabilities.push_back(kCapabilities[bit]);
  for (const OptionSpec& o : d.options) f.options.push_back(facts_of(o));
  return f;
}

// Why a run would refuse the library, or "".
std::string not_served(const PluginLibrary& library) {
  try {
    for (const Descriptor& d : library.descriptors) check_served(d);
    return "";
  } catch (const Error& e) {
    return library.path + ": " + e.what();
  }
}

// In the child: opens the file in this process.
PluginFile look(const std::string& path) {
  PluginFile file;
  file.path = path;
  try {
    const PluginLibrary library = open_plugin(path);
    file.path = library.path, file.hash = library.hash;
    file.abi = str(library.table.abi_major, ".", library.table.abi_minor_built, " (runs from ", library.table.abi_major,
                   ".", library.table.abi_minor_min, ")");
    for (const Descriptor& d : library.descriptors) file.descriptors.push_back(facts_of(d));
    if (file.descriptors.empty()) file.problem = file.path + ": is of no kind that this shale knows";
    file.problem += not_served(library);
  } catch (const std::exception& e) {
    file.problem = e.what();
  }
  return file;
}

[[noreturn]] void child(const std::string& path, int out) {
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);  // a plugin that prints would spoil the tool's output
  const std::string text = to_json(look(path));
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::write(out, text.data() + sent, text.size() - sent);
    if (n <= 0) _exit(1);
    sent += static_cast<std::size_t>(n);
  }
  _exit(0);
}

// Everything the child writes until it ends or the time is up; false = it took too long or wrote too much.
bool read_all(int fd, double until, std::string& text) {
  char buffer[65536];
  for (;;) {
    const double left = until - now();
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left * 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || text.size() > kMostOutput) return false;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

int reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// What the child said, or how it ended.
PluginFile result_of(const std::string& path, bool in_time, int status, const std::string& text, double limit) {
  PluginFile file;
  file.path = path;
  if (!in_time)
    file.problem = str(path, ": opening it took longer than ", limit, " s: a bug of the plugin");
  else if (WIFSIGNALED(status))
    file.problem = str(path, ": crashes when it is opened (signal ", WTERMSIG(status), ", ",
                       strsignal(WTERMSIG(status)), "): a bug of the plugin");
  else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !from_json(text, file))
    file.problem = str(path, ": ends the process that opens it: a bug of the plugin");
  return file;
}

void mark_shadowed(std::vector<PluginFile>& files) {
  std::set<std::string> names;
  for (PluginFile& f : files) f.shadowed = !names.insert(std::filesystem::path(f.path).filename().string()).second;
}

}  // namespace

PluginFile plugin_info(const std::string& path, double limit) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) fail(Code::io, "no pipe can be made: ", std::strerror(errno));
  const pid_t pid = ::fork();
  if (pid < 0) fail(Code::io, "no process can be started: ", std::strerror(errno));
  if (pid == 0) {
    ::close(pipe[0]);
    child(path, pipe[1]);
  }
  ::close(pipe[1]);
  std::string text;
  const bool in_time = read_all(pipe[0], now() + limit, text);
  ::close(pipe[0]);
  if (!in_time) ::kill(pid, SIGKILL);
  return result_of(path, in_time, reap(pid), text, limit);
}

std::vector<PluginFile> list_plugins(const PluginPaths& paths) {
  std::vector<PluginFile> files;
  for (const std::string& folder : paths.folders) {
    std::vector<std::string> there;
    std::error_code problem;
    for (const auto& entry : std::filesystem::directory_iterator(folder, problem))
      if (entry.path().extension() == ".so") there.push_back(entry.path().string());
    std::sort(there.begin(), there.end());
    for (const std::string& path : there) files.push_back(plugin_info(path));
  }
  mark_shadowed(files);
  return files;
}

}  // namespace shale

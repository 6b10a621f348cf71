// Cases about instances: interfaces, life cycle, side effects.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iterator>

#include "checks.h"
#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"

extern char** environ;

namespace shale::conform {
namespace {

template <class Visit>
void for_each_kind(const std::string& file, Visit&& visit) {
  const FakeHost host;
  const Library library(file);
  const shale_plugin& p = *library.table(host);
  for (std::uint32_t k = 0; k < p.n_descs; ++k) visit(library, *p.descs[k]);
}

// Whether a table of the kind's required interface has what 0.1 demands.
std::string required_problem(std::uint32_t kind, const void* table) {
  const auto need = [&]<class T>(const T& t, bool complete, std::size_t size) -> std::string {
    if (t.struct_size < size) return "is shorter than ABI 0.1's";
    return complete ? "" : "lacks a required function";
  };
  if (kind == SHALE_KIND_SHARDING) {
    const auto& t = *static_cast<const shale_sharding*>(table);
    return need(t, t.plan != nullptr, offsetof(shale_sharding, plan) + sizeof t.plan);
  }
  if (kind == SHALE_KIND_PRECISION) {
    const auto& t = *static_cast<const shale_precision*>(table);
    return need(t, t.plan != nullptr, offsetof(shale_precision, plan) + sizeof t.plan);
  }
  if (kind == SHALE_KIND_OFFLOAD) {
    const auto& t = *static_cast<const shale_offload*>(table);
    return need(t, t.plan != nullptr, offsetof(shale_offload, plan) + sizeof t.plan);
  }
  const auto& t = *static_cast<const shale_checkpoint*>(table);
  const bool complete = t.format != nullptr && t.write != nullptr && t.describe != nullptr;
  return need(t, complete, offsetof(shale_checkpoint, read) + sizeof t.read);
}

void check_ids(const Instance& plugin, Problems& out) {
  std::vector<std::string> wrong = {"", "/", "shale", "shale.nothing/1", "x-shale.nothing/1"};
  for (const char* const* id = plugin.desc().interfaces; *id != nullptr; ++id) {
    const std::string known = *id;
    if (plugin.find(*id) != plugin.find(known.c_str())) out.push_back(known + " is compared by address");
    for (auto& other : {known + "x", known + "1", " " + known, known + " ", known.substr(0, known.size() - 1),
                        known.substr(0, known.find('/')) + "/99"})
      wrong.push_back(other);
  }
  for (auto& id : wrong)
    if (plugin.find(id.c_str()) != nullptr) out.push_back("answers to \"" + id + "\"");
}

struct Surroundings {
  std::ptrdiff_t threads, files;
  std::string folder;
  std::vector<std::string> environment;
  bool operator==(const Surroundings&) const = default;
};

std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

Surroundings look() {
  Surroundings s{entries("/proc/self/task"), entries("/proc/self/fd"), std::filesystem::current_path(), {}};
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) s.environment.emplace_back(*e);
  return s;
}

}  // namespace

Problems check_interfaces(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host;
    const Instance plugin(library, d.kind, host, least_given(d));
    const void* table = plugin.find(kRequired[d.kind]);
    if (table == nullptr) {
      out.push_back(std::string(d.id) + " does not answer to " + kRequired[d.kind]);
      return;
    }
    if (auto problem = required_problem(d.kind, table); !problem.empty())
      out.push_back(std::string(kRequired[d.kind]) + " " + problem);
    check_ids(plugin, out);
  });
  return out;
}

Problems check_lifecycle(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host, second;
    for (int k = 0; k < 1000; ++k) Instance(library, d.kind, host, least_given(d));
    {
      const Instance one(library, d.kind, host, least_given(d));
      const Instance two(library, d.kind, second, least_given(d));
      if (one.self() == two.self() && one.self() != nullptr) out.push_back("two instances are one");
    }
    if (host.live() != 0 || second.live() != 0) out.push_back("statuses were made and not handed on");
  });
  return out;
}

Problems check_quiet(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host;
    const Surroundings before = look();
    const Instance plugin(library, d.kind, host, least_given(d));
    if (look() != before)
      out.push_back("create changed the process: threads, open files, environment or working directory");
  });
  return out;
}

}  // namespace shale::conform

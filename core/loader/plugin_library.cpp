#include "core/loader/plugin_library.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/loader/descriptor.h"
#include "core/loader/dynamic_library.h"
#include "core/loader/elf_check.h"
#include "core/loader/status.h"

namespace shale {
namespace {

using Entry = const shale_plugin*(const shale_host*);
constexpr const char* kEntryName = "shale_plugin_entry_v1";
constexpr std::uint16_t kOldestMinor = 1;

Entry* find_entry(const std::string& path) {
  const DynamicLibrary library(path,
                               "rebuild the plugin against this shale's sdk only, linked with -Wl,--no-undefined");
  Entry* entry = library.find<Entry>(kEntryName);
  if (entry == nullptr) fail(Code::config, path, ": is no shale plugin: it does not export ", kEntryName);
  return entry;
}

const shale_plugin* call_entry(Entry* entry) {
  static const shale_host host = host_head();  // an entry keeps nothing, but nothing stops it from trying
  const shale_plugin* table = nullptr;
  try {
    table = entry(&host);
  } catch (const std::exception& e) {
    fail(Code::config, kEntryName, " threw a C++ exception (", one_line(e.what()), "): a bug of the plugin");
  } catch (...) {
    fail(Code::config, kEntryName, " threw a C++ exception: a bug of the plugin");
  }
  return table;
}

void check_versions(const shale_plugin& head) {  // reads the frozen head only
  const char* what = nullptr;
  if (head.abi_major != SHALE_ABI_MAJOR)
    what = "another generation: rebuild it with this shale's sdk";
  else if (head.abi_minor_min > SHALE_ABI_MINOR)
    what = "it needs a newer shale: update shale or rebuild the plugin";
  else if (head.abi_minor_built < kOldestMinor)
    what = "it is too old: rebuild it with this shale's sdk";
  if (what == nullptr) return;
  fail(Code::config, "it was built for plugin ABI ", head.abi_major, ".", head.abi_minor_built, " and runs from ",
       head.abi_major, ".", head.abi_minor_min, "; this shale has ", SHALE_ABI_MAJOR, ".", SHALE_ABI_MINOR,
       " and takes from ", SHALE_ABI_MAJOR, ".", kOldestMinor, ": ", what);
}

}  // namespace

shale_host host_head() {
  shale_host host{};
  host.struct_size = sizeof host;
  host.abi_major = SHALE_ABI_MAJOR, host.abi_minor = SHALE_ABI_MINOR, host.abi_minor_oldest = kOldestMinor;
  host.name = "shale", host.version = SHALE_VERSION, host.build_id = SHALE_VERSION;
  set_status_functions(host);
  host.get_service = [](void*, const char*) -> const void* { return nullptr; };
  return host;
}

void shake_hands(const shale_plugin* theirs, PluginLibrary& library) {
  if (theirs == nullptr)
    fail(Code::config, kEntryName, " returned no table: the plugin refuses this shale (ABI ", SHALE_ABI_MAJOR, ".",
         SHALE_ABI_MINOR, "), see its documentation");
  constexpr std::size_t kHead = offsetof(shale_plugin, reserved);
  if (size_of(theirs) < kHead)
    fail(Code::config, "its table says it has ", size_of(theirs), " bytes: a broken build, rebuild it");
  check_versions(*theirs);
  shale_plugin& table = library.table;
  if (!take(theirs, table))
    fail(Code::config, "its table has ", size_of(theirs), " bytes, shorter than the ", kBaseline<shale_plugin>,
         " of ABI 0.1: a broken build, rebuild it with this shale's sdk");
  if (table.create == nullptr || table.destroy == nullptr || table.get_interface == nullptr)
    fail(Code::config, "its table lacks create, destroy or get_interface: a bug of the plugin");
  constexpr std::uint32_t kMost = 64;
  if (table.n_descs == 0 || table.n_descs > kMost || table.descs == nullptr)
    fail(Code::config, "it has ", table.n_descs, " descriptors, not 1..", kKindCount, ": a bug of the plugin");
  for (std::uint32_t k = 0; k < table.n_descs; ++k) {
    const shale_desc* raw = table.descs[k];
    shale_desc c;
    if (take(raw, c) && (c.kind == 0 || c.kind > kKindCount)) continue;  // a kind of a later shale
    Descriptor d = read_descriptor(raw);
    for (const Descriptor& other : library.descriptors)
      if (other.kind == d.kind)
        fail(Code::config, "it has two descriptors of kind ", kKinds[d.kind], " (", other.id, ", ", d.id,
             "): a bug of the plugin");
    library.descriptors.push_back(std::move(d));
  }
}

PluginLibrary open_plugin(const std::string& path) {
  std::error_code problem;
  PluginLibrary library;
  library.path = std::filesystem::canonical(path, problem).string();
  if (problem) fail(Code::config, path, ": ", problem.message(), ": give the path of a plugin that is there");
  if (!std::filesystem::is_regular_file(library.path, problem))
    fail(Code::config, library.path, ": is not a file: give the path of a plugin's .so file");
  if (const std::string why = elf_problem(library.path); !why.empty())
    fail(Code::config, library.path, ": cannot be a plugin: ", why);
  library.hash = hash_file(library.path);
  Entry* entry = find_entry(library.path);
  try {
    shake_hands(call_entry(entry), library);
  } catch (const Error& e) {
    fail(e.code(), library.path, ": ", e.what());
  }
  return library;
}

const Descriptor& PluginLibrary::descriptor(const std::string& kind) const {
  std::vector<std::string> has;
  for (const Descriptor& d : descriptors) {
    if (kKinds[d.kind] == kind) return d;
    has.push_back(str(kKinds[d.kind], " ", d.id));
  }
  fail(Code::config, path, ": is no ", kind,
       " plugin; it is: ", has.empty() ? "nothing this shale knows" : join(has, ", "));
}

}  // namespace shale

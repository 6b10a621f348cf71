// One plugin file: opened once, through the handshake, its descriptors checked and copied. Never unloaded.
#pragma once

#include <string>
#include <vector>

#include "core/loader/abi.h"
#include "core/loader/options.h"

namespace shale {

struct Descriptor {  // a checked copy of shale_desc
  const shale_desc* raw = nullptr;
  std::uint32_t kind = 0;
  std::string id, version, summary, vendor, license, url;
  std::uint64_t caps = 0;
  std::vector<std::string> interfaces, needs;
  std::vector<OptionSpec> options;
};

struct PluginLibrary {
  std::string path, hash;  // canonical; hash_file of it
  shale_plugin table{};    // cut or filled to our size
  std::vector<Descriptor> descriptors;

  // The one of a kind, or Error{config} saying what the file has instead.
  const Descriptor& descriptor(const std::string& kind) const;
};

// path: absolute. Error{config}, or Error{io} for a file that cannot be read, starting with the path; no file:line:col.
// A library stays mapped until the process ends, also when the handshake fails. One thread at a time.
PluginLibrary open_plugin(const std::string& path);

// The handshake alone, on what the entry returned; fills table and descriptors. The text of its Error{config} has no
// path.
void shake_hands(const shale_plugin*, PluginLibrary&);

// What this build offers, without instance: versions and names; functions null.
shale_host host_head();

}  // namespace shale

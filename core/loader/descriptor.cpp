#include "core/loader/descriptor.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/loader/status.h"

namespace shale {
namespace {

// Hooks that the engine calls are declared by these; a plugin that counts on one must not run without it.
constexpr std::array kServedInterfaces = {SHALE_SHARDING,  SHALE_EXCHANGE, SHALE_OUTER,
                                          SHALE_PRECISION, SHALE_OFFLOAD,  SHALE_CHECKPOINT};
constexpr std::array kServedServices = {SHALE_LOG_SERVICE, SHALE_RUN_SERVICE};
constexpr std::array kHookServices = {SHALE_LANE_SERVICE, SHALE_COLLECTIVES_SERVICE, SHALE_MATH_SERVICE};
constexpr std::array kFormatServices = {SHALE_FILES_SERVICE};

bool served(const auto& list, const std::string& id) { return std::find(list.begin(), list.end(), id) != list.end(); }

bool serves(std::uint32_t kind, const std::string& service) {
  return served(kServedServices, service) || (kind == SHALE_KIND_SHARDING && served(kHookServices, service)) ||
         (kind == SHALE_KIND_CHECKPOINT && served(kFormatServices, service));
}

bool good_id(const std::string& id) {
  return !id.empty() && id.size() <= 128 && id.front() != '.' && id.back() != '.' &&
         id.find("..") == std::string::npos &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string::npos;
}

bool good_version(const std::string& version) {  // x.y.z and perhaps more behind it
  const auto parts = split(version.substr(0, version.find_first_of("-+")), '.');
  return version.size() <= 64 && parts.size() == 3 && std::all_of(parts.begin(), parts.end(), [](const auto& p) {
           return !p.empty() && p.find_first_not_of("0123456789") == std::string::npos;
         });
}

std::vector<std::string> read_list(const char* const* list, const char* what, const std::string& id) {
  constexpr std::size_t kMost = 256;  // an array that nobody ended
  std::vector<std::string> out;
  if (list == nullptr) return out;
  for (; *list != nullptr; ++list) {
    out.push_back(one_line(*list));
    if (out.size() > kMost) fail(Code::config, "the list of ", what, " of ", id, " has no end: a bug of the plugin");
  }
  return out;
}

std::string required_interface(std::uint32_t kind) { return str("shale.", kKinds[kind], "/1"); }

}  // namespace

Descriptor read_descriptor(const shale_desc* raw) {
  shale_desc c;
  if (!take(raw, c))
    fail(Code::config, "a descriptor has ", raw ? size_of(raw) : 0, " bytes, ABI 0.1 has ", kBaseline<shale_desc>,
         ": a broken build, rebuild it with this shale's sdk");
  Descriptor d;
  d.raw = raw, d.kind = c.kind, d.caps = c.caps;
  d.id = to_text(c.id), d.version = to_text(c.version), d.summary = one_line(to_text(c.summary));
  d.vendor = one_line(to_text(c.vendor)), d.license = one_line(to_text(c.license)), d.url = one_line(to_text(c.url));
  if (!good_id(d.id))
    fail(Code::config, "it calls itself \"", one_line(d.id),
         "\", which is no plugin id ([a-z0-9_]+ or a reverse domain): ", "a bug of the plugin");
  if (!good_version(d.version))
    fail(Code::config, d.id, " has the version \"", one_line(d.version), "\", not x.y.z: a bug of the plugin");
  d.interfaces = read_list(c.interfaces, "interfaces", d.id);
  d.needs = read_list(c.needs, "needed services", d.id);
  if (!served(d.interfaces, required_interface(d.kind)))
    fail(Code::config, d.id, " is of kind ", kKinds[d.kind], " but does not declare ", required_interface(d.kind),
         " (it declares ", d.interfaces.empty() ? "nothing" : join(d.interfaces, ", "), "): a bug of the plugin");
  d.options = read_option_table(c.options, c.n_options, c.option_stride);
  return d;
}

void check_served(const Descriptor& d) {
  for (const std::string& id : d.interfaces) {
    // Another revision beside /1, or an interface of somebody else's, is no promise we would break.
    const bool ours = id.starts_with("shale.") && id.find('.', 6) != std::string::npos;
    if (ours && !served(kServedInterfaces, id))
      fail(Code::config, d.id, " ", d.version, " brings the interface ", id, ", which this shale (ABI ",
           SHALE_ABI_MAJOR, ".", SHALE_ABI_MINOR, ") does not call: use a newer shale or another plugin");
  }
  for (const std::string& id : d.needs)
    if (!serves(d.kind, id))
      fail(Code::config, d.id, " ", d.version, " needs the host service ", id, ", which this shale (ABI ",
           SHALE_ABI_MAJOR, ".", SHALE_ABI_MINOR, ") does not offer to plugins of kind ", kKinds[d.kind],
           ": use a newer shale or another plugin");
}

}  // namespace shale

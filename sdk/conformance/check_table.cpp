// Cases about what a plugin says of itself: exports, versions, descriptors, options.
#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "checks.h"
#include "shale/checkpoint.h"
#include "shale/offload.h"
#include "shale/precision.h"
#include "shale/sharding.h"

namespace shale::conform {
namespace {

constexpr std::uint64_t kKnownCaps =
    SHALE_CAP_CPU | SHALE_CAP_CUDA | SHALE_CAP_CHANGES_MATH | SHALE_CAP_NEEDS_EVEN_NODES;

std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T at(const std::string& bytes, std::uint64_t offset) {
  T t;
  if (offset > bytes.size() || sizeof t > bytes.size() - offset) throw std::runtime_error("the ELF file is cut off");
  std::memcpy(&t, bytes.data() + offset, sizeof t);
  return t;
}

std::vector<std::string> exported(const std::string& file) {
  const std::string bytes = read_file(file);
  const auto header = at<Elf64_Ehdr>(bytes, 0);
  std::vector<std::string> names;
  for (int k = 0; k < header.e_shnum; ++k) {
    const auto section = at<Elf64_Shdr>(bytes, header.e_shoff + std::uint64_t(k) * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto texts =
        at<Elf64_Shdr>(bytes, header.e_shoff + std::uint64_t(section.sh_link) * sizeof(Elf64_Shdr)).sh_offset;
    for (std::uint64_t offset = 0; offset < section.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(bytes, section.sh_offset + offset);
      const auto visible = ELF64_ST_VISIBILITY(symbol.st_other);
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || visible == STV_HIDDEN) continue;
      at<char>(bytes, texts + symbol.st_name);
      names.emplace_back(bytes.c_str() + texts + symbol.st_name);
    }
  }
  return names;
}

bool matches(const char* text, const char* pattern) {
  return text != nullptr && std::regex_match(text, std::regex(pattern));
}

void check_text(const char* text, const std::string& what, Problems& out) {
  if (text == nullptr || *text == '\0') {
    out.push_back(what + " is empty");
  } else if (std::strpbrk(text, "\n\r\t") != nullptr) {
    out.push_back(what + " is not one line");
  }
}

void check_interface_list(const shale_desc& d, Problems& out) {
  bool required = false;
  for (const char* const* id = d.interfaces; id != nullptr && *id != nullptr; ++id) {
    required = required || (d.kind <= SHALE_KIND_CHECKPOINT && std::strcmp(*id, kRequired[d.kind]) == 0);
    if (!matches(*id, "[a-z0-9.-]+/[0-9]+")) out.push_back(std::string(d.id) + ": interface id " + *id);
  }
  if (!required) out.push_back(std::string(d.id) + " does not declare the interface its kind must have");
}

void check_descriptor(const shale_desc& d, Problems& out) {
  if (d.struct_size < offsetof(shale_desc, option_stride) + sizeof d.option_stride) {
    out.push_back("a descriptor is shorter than ABI 0.1's");
    return;
  }
  if (d.kind < SHALE_KIND_SHARDING || d.kind > SHALE_KIND_CHECKPOINT)
    out.push_back("kind " + std::to_string(d.kind) + " is not a kind");
  if (!matches(d.id, "[a-z0-9_]+(\\.[a-z0-9_]+)*")) out.push_back("the id must be [a-z0-9_]+ or a reverse domain");
  if (!matches(d.version, "[0-9]+\\.[0-9]+\\.[0-9]+")) out.push_back("the version must be x.y.z");
  check_text(d.summary, "the summary", out);
  if (d.caps & ~kKnownCaps) out.push_back("caps has bits that no macro names");
  check_interface_list(d, out);
}

bool is_number(std::uint32_t type) {
  return type == SHALE_OPT_INT || type == SHALE_OPT_FLOAT || type == SHALE_OPT_BYTES || type == SHALE_OPT_SECONDS;
}

// The option's value for a text, through the same reader a run would use.
double value_of(const shale_option& o, const char* text) {
  shale_option alone = o;
  alone.fallback = text;
  SHALE_VAR(shale_desc, d);
  d.id = "option", d.options = &alone, d.n_options = 1, d.option_stride = sizeof alone;
  return Values(d, {}).get()->values[0].f;
}

void check_option(const shale_option& o, Problems& out) {
  const std::string name = o.key == nullptr ? "an option" : std::string("option ") + o.key;
  if (!matches(o.key, "[a-z][a-z0-9_]*")) out.push_back(name + ": the key must be [a-z][a-z0-9_]*");
  check_text(o.help, name + ": the help", out);
  if (o.unit == nullptr) out.push_back(name + ": the unit is NULL; \"\" means none");
  if (o.type < SHALE_OPT_BOOL || o.type > SHALE_OPT_TEXTS) out.push_back(name + ": unknown type");
  if (!is_number(o.type) && (o.min != nullptr || o.max != nullptr)) out.push_back(name + ": only numbers have bounds");
  if ((o.type == SHALE_OPT_CHOICE) != (o.choices != nullptr)) out.push_back(name + ": choices belong to CHOICE");
  if (!out.empty()) return;
  try {
    if (o.fallback != nullptr) value_of(o, o.fallback);
    const double low = o.min ? value_of(o, o.min) : 0, high = o.max ? value_of(o, o.max) : 0;
    if (o.min && o.max && low > high) out.push_back(name + ": min is above max");
    if (o.fallback && is_number(o.type) &&
        ((o.min && value_of(o, o.fallback) < low) || (o.max && value_of(o, o.fallback) > high)))
      out.push_back(name + ": the default is out of bounds");
  } catch (const std::invalid_argument& e) {
    out.push_back(name + ": default or bound: " + e.what());
  }
}

}  // namespace

Given least_given(const shale_desc& desc) {
  Given given;
  for (const shale_option* o : options_of(desc)) {
    if (o->fallback != nullptr) continue;
    const std::string choices = o->choices ? o->choices : "";
    given[o->key] = o->min                        ? o->min
                    : o->type == SHALE_OPT_CHOICE ? choices.substr(0, choices.find('|'))
                    : o->type == SHALE_OPT_BOOL   ? "false"
                    : o->type == SHALE_OPT_PATH   ? "/nowhere"
                                                  : "1";
  }
  return given;
}

Problems check_exports(const Subject& subject) {
  Problems out;
  bool entry = false;
  for (auto& name : exported(subject.file)) {
    entry = entry || name == "shale_plugin_entry_v1";
    if (name != "shale_plugin_entry_v1") out.push_back("exports " + name + " too: link with cmake/plugin.map");
  }
  if (!entry) out.push_back("does not export shale_plugin_entry_v1");
  return out;
}

Problems check_entry(const Subject& subject) {
  const FakeHost host, other;
  const Library library(subject.file);
  const shale_plugin* first = library.table(host);
  if (first == nullptr) return {"the entry returned NULL"};
  const shale_plugin before = *first;
  if (library.table(other) != first || library.table(host) != first) return {"the entry returned another table"};
  if (std::memcmp(&before, first, sizeof before) != 0) return {"the table changed between two calls"};
  return {};
}

Problems check_other_major(const Subject& subject) {
  const FakeHost host(offsetof(shale_host, ctx), SHALE_ABI_MAJOR + 1, 0);
  if (Library(subject.file).table(host) == nullptr)
    return {"returned NULL: the host words the refusal, the plugin returns its table"};
  return {};
}

Problems check_versions(const Subject& subject) {
  const FakeHost host;
  const shale_plugin& p = *Library(subject.file).table(host);
  Problems out;
  if (p.abi_major != SHALE_ABI_MAJOR)
    return {"was built for ABI " + std::to_string(p.abi_major) + ", this SDK is " + std::to_string(SHALE_ABI_MAJOR)};
  if (p.struct_size < offsetof(shale_plugin, get_interface) + sizeof p.get_interface)
    return {"its table is shorter than ABI 0.1's"};
  if (p.abi_minor_min > p.abi_minor_built) out.push_back("abi_minor_min is above abi_minor_built");
  if (p.abi_minor_built > SHALE_ABI_MINOR) out.push_back("was built with a newer SDK than this kit's");
  if (p.reserved != 0) out.push_back("a reserved member is not 0");
  if (p.n_descs == 0 || p.descs == nullptr) out.push_back("has no descriptor");
  if (!p.create || !p.destroy || !p.get_interface) out.push_back("create, destroy or get_interface is NULL");
  return out;
}

Problems check_descriptors(const Subject& subject) {
  const FakeHost host;
  const shale_plugin& p = *Library(subject.file).table(host);
  Problems out;
  std::set<std::uint32_t> kinds;
  for (std::uint32_t k = 0; k < p.n_descs; ++k) {
    check_descriptor(*p.descs[k], out);
    if (!kinds.insert(p.descs[k]->kind).second) out.push_back("two descriptors of one kind");
  }
  return out;
}

Problems check_options(const Subject& subject) {
  const FakeHost host;
  const shale_plugin& p = *Library(subject.file).table(host);
  Problems out;
  for (std::uint32_t k = 0; k < p.n_descs; ++k) {
    const shale_desc& d = *p.descs[k];
    if (d.n_options != 0 && d.option_stride < offsetof(shale_option, choices) + sizeof(char*))
      return {std::string(d.id) + ": option_stride is shorter than ABI 0.1's shale_option"};
    std::set<std::string> keys;
    for (const shale_option* o : options_of(d)) {
      check_option(*o, out);
      if (o->key != nullptr && !keys.insert(o->key).second) out.push_back(std::string("option ") + o->key + " twice");
    }
  }
  return out;
}

}  // namespace shale::conform

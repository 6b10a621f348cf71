#include "host.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace shale::conform {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kSlack = 0;
#else
constexpr std::size_t kSlack = 256;
#endif

struct Status {  // behind a shale_status of this host
  std::uint32_t code;
  std::string where, text;
  std::atomic<int>* live;
};

const Status* real(const shale_status* s) { return reinterpret_cast<const Status*>(s); }
std::string copy(shale_str s) { return s.ptr == nullptr ? "" : std::string(s.ptr, s.len); }
shale_str borrow(const std::string& s) { return {s.data(), s.size()}; }

shale_status* status_make(void* ctx, std::uint32_t code, shale_str where, shale_str text) {
  return static_cast<FakeHost*>(ctx)->make(code, copy(where), copy(text));
}
std::uint32_t status_code(const shale_status* s) { return real(s)->code; }
shale_str status_where(const shale_status* s) { return borrow(real(s)->where); }
shale_str status_text(const shale_status* s) { return borrow(real(s)->text); }
void status_free(shale_status* s) {
  if (s == nullptr) return;
  --*real(s)->live;
  delete reinterpret_cast<Status*>(s);
}

shale_host host_table(std::uint16_t major, std::uint16_t minor, void* ctx) {
  shale_host h{};
  h.abi_major = major, h.abi_minor = minor, h.abi_minor_oldest = 1;
  h.name = "shale-conform", h.version = "0.1.0", h.build_id = "conformance";
  h.ctx = ctx;
  h.status_make = status_make, h.status_code = status_code, h.status_where = status_where;
  h.status_text = status_text, h.status_free = status_free;
  return h;
}

// A number and what follows it.
double number(const std::string& key, std::string text, std::string& unit) {
  std::erase(text, '_');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) throw std::invalid_argument(key + ": " + text + " is not a number");
  unit = end;
  std::erase(unit, ' ');
  return value;
}

double scale_of(const std::string& key, const std::string& unit) {
  static const std::map<std::string, double> scales = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"ms", 1e-3},
      {"s", 1},     {"min", 60},     {"h", 3600},     {"d", 86400}};
  if (auto found = scales.find(unit); found != scales.end()) return found->second;
  throw std::invalid_argument(key + ": " + unit + " is not a unit");
}

std::int64_t position(const char* choices, const std::string& text) {
  std::int64_t k = 0;
  const std::string all = choices == nullptr ? "" : choices;
  for (std::size_t begin = 0; begin <= all.size(); ++k) {
    const auto end = std::min(all.find('|', begin), all.size());
    if (all.substr(begin, end - begin) == text) return k;
    begin = end + 1;
  }
  return -1;
}

}  // namespace

std::string to_text(const Answer& a) {
  return a.code == 0 ? "fine" : "code " + std::to_string(a.code) + ": " + a.where + ": " + a.text;
}

Exactly::Exactly(const void* from, std::size_t have, std::size_t size) : memory_(new std::byte[size + kSlack]) {
  std::memset(memory_.get(), 0x5a, size + kSlack);
  std::memcpy(memory_.get(), from, std::min(have, size));
  const auto n = static_cast<std::uint32_t>(size);
  std::memcpy(memory_.get(), &n, sizeof n);
}

FakeHost::FakeHost(std::size_t size, std::uint16_t major, std::uint16_t minor)
    : idle_(this),
      services_{{SHALE_LOG_SERVICE, &idle_.log},
                {SHALE_LANE_SERVICE, &idle_.lanes},
                {SHALE_COLLECTIVES_SERVICE, &idle_.collectives},
                {SHALE_MATH_SERVICE, &idle_.math}},
      table_([&] {
        shale_host h = host_table(major, minor, this);
        h.get_service = &FakeHost::service;
        return Exactly(&h, sizeof h, size);
      }()) {}

shale_status* FakeHost::make(std::uint32_t code, const std::string& where, const std::string& text) {
  ++live_;
  return reinterpret_cast<shale_status*>(new Status{code, where, text, &live_});
}

Answer FakeHost::take(shale_status* s) {
  if (s == nullptr) return {};
  Answer a{real(s)->code, real(s)->where, real(s)->text};
  status_free(s);
  return a;
}

const void* FakeHost::service(void* ctx, const char* id) {
  auto& offered = static_cast<FakeHost*>(ctx)->services_;
  const auto found = offered.find(id);
  return found == offered.end() ? nullptr : found->second;
}

Values::Values(const shale_desc& desc, const Given& given) {
  Given left = given;
  for (const shale_option* o : options_of(desc)) {
    const auto mine = left.find(o->key);
    if (mine == left.end() && o->fallback == nullptr)
      throw std::invalid_argument(std::string(o->key) + " must be given");
    values_.push_back(parse(*o, mine == left.end() ? o->fallback : mine->second));
    values_.back().is_set = mine != left.end();
    if (mine != left.end()) left.erase(mine);
  }
  if (!left.empty()) throw std::invalid_argument(left.begin()->first + " is not an option of " + desc.id);
  config_ = {sizeof config_, static_cast<std::uint32_t>(values_.size()), values_.data()};
}

shale_value Values::parse(const shale_option& o, const std::string& text) {
  shale_value v{};
  v.type = o.type;
  std::string unit;
  texts_.push_back(text);
  v.s = borrow(texts_.back());
  switch (o.type) {
    case SHALE_OPT_BOOL:
      if (text != "true" && text != "false") throw std::invalid_argument(std::string(o.key) + " must be true or false");
      v.i = text == "true";
      break;
    case SHALE_OPT_INT:
    case SHALE_OPT_BYTES:
    case SHALE_OPT_FLOAT:
    case SHALE_OPT_SECONDS:
      v.f = number(o.key, text, unit) * (unit.empty() ? 1 : scale_of(o.key, unit));
      v.i = static_cast<std::int64_t>(v.f);
      break;
    case SHALE_OPT_CHOICE:
      v.i = position(o.choices, text);
      if (v.i < 0) throw std::invalid_argument(std::string(o.key) + " must be one of " + (o.choices ? o.choices : ""));
      break;
    case SHALE_OPT_TEXTS:
      lists_.emplace_back();
      for (std::size_t at = text.find('"'); at != std::string::npos; at = text.find('"', text.find('"', at + 1) + 1)) {
        texts_.push_back(text.substr(at + 1, text.find('"', at + 1) - at - 1));
        lists_.back().push_back(borrow(texts_.back()));
      }
      v.list = lists_.back().data(), v.n_list = lists_.back().size();
      break;
    default:
      break;
  }
  return v;
}

Library::Library(const std::string& path) : path_(path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  void* symbol = dlsym(handle, "shale_plugin_entry_v1");
  if (symbol == nullptr) throw std::runtime_error(path + ": no shale_plugin_entry_v1: not a shale plugin");
  std::memcpy(&entry_, &symbol, sizeof symbol);
}

const shale_desc* find_kind(const shale_plugin& plugin, std::uint32_t kind) {
  for (std::uint32_t k = 0; k < plugin.n_descs; ++k)
    if (plugin.descs[k]->kind == kind) return plugin.descs[k];
  return nullptr;
}

std::vector<const shale_option*> options_of(const shale_desc& desc) {
  std::vector<const shale_option*> all;
  const auto* row = reinterpret_cast<const std::byte*>(desc.options);
  for (std::uint32_t k = 0; k < desc.n_options; ++k)
    all.push_back(reinterpret_cast<const shale_option*>(row + std::size_t{k} * desc.option_stride));
  return all;
}

Instance::Instance(const Library& library, std::uint32_t kind, FakeHost& host, const Given& given)
    : host_(host), plugin_(library.table(host)), desc_(find_kind(*plugin_, kind)) {
  if (desc_ == nullptr) throw std::runtime_error(library.path() + ": no plugin of kind " + std::to_string(kind));
  values_ = std::make_unique<Values>(*desc_, given);
  if (shale_status* bad = plugin_->create(host.get(), desc_, values_->get(), &self_)) throw Refused(host.take(bad));
}

}  // namespace shale::conform

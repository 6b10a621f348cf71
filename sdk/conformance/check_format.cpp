// Cases about checkpoint formats: traits, a round trip through memory, and damaged files. Plugins of other kinds pass.
#include <algorithm>
#include <cstring>

#include "checks.h"
#include "folder.h"
#include "shale/checkpoint.h"

namespace shale::conform {
namespace {

constexpr std::uint32_t kKnownFlags = SHALE_FORMAT_BOXES | SHALE_FORMAT_BYTES | SHALE_FORMAT_VALUES |
                                      SHALE_FORMAT_OPTIMIZER | SHALE_FORMAT_ALIASES | SHALE_FORMAT_ONE_WRITER;
constexpr std::int64_t kRows = 5, kColumns = 7, kCut = 3;

// A format plugin with a folder, or nothing where the file has none.
struct Format {
  explicit Format(const Library& library)
      : plugin(library, SHALE_KIND_CHECKPOINT, host), table(plugin.table<shale_checkpoint>(SHALE_CHECKPOINT)) {
    traits.struct_size = sizeof traits;
    if (const Answer a = host.take(table.format(plugin.self(), &traits)); a.code != 0)
      throw std::runtime_error("format: " + to_text(a));
  }
  FakeHost host;
  MemoryFolder folder{host};
  Instance plugin;
  const shale_checkpoint& table;
  shale_format traits{};
};

bool has_format(const Library& library) {
  const FakeHost host;
  return find_kind(*library.table(host), SHALE_KIND_CHECKPOINT) != nullptr;
}

struct Thing {  // an item and its bytes
  std::string name, key;
  std::uint32_t kind, role;
  std::string bytes;
  shale_value value{};

  shale_item item() const {
    SHALE_VAR(shale_item, i);
    i.kind = kind, i.role = role;
    i.name = {name.data(), name.size()}, i.key = {key.data(), key.size()};
    if (kind == SHALE_ITEM_TENSOR) i.dtype = SHALE_F32, i.ndim = 2, i.shape[0] = kRows, i.shape[1] = kColumns;
    if (kind == SHALE_ITEM_BYTES) i.dtype = SHALE_U8, i.ndim = 1, i.shape[0] = static_cast<std::int64_t>(bytes.size());
    if (kind == SHALE_ITEM_VALUE) i.value = &value;
    return i;
  }
};

std::string pattern(std::size_t n, int seed) {
  std::string out(n, '\0');
  for (std::size_t k = 0; k < n; ++k) out[k] = static_cast<char>(k * 37 + static_cast<std::size_t>(seed) * 101);
  return out;
}

std::vector<Thing> things(const shale_format& traits) {
  const std::size_t n = kRows * kColumns * sizeof(float);
  std::vector<Thing> all = {{"layer.weight", "weight", SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, pattern(n, 1)}};
  all.push_back({"norm.weight", "weight", SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, pattern(n, 2)});
  if (traits.flags & SHALE_FORMAT_OPTIMIZER)
    all.push_back({"layer.weight", "exp_avg", SHALE_ITEM_TENSOR, SHALE_ROLE_OPTIMIZER, pattern(n, 3)});
  if (traits.flags & SHALE_FORMAT_BYTES)
    all.push_back({"run", "rng", SHALE_ITEM_BYTES, SHALE_ROLE_RUN, pattern(19, 4)});
  if (traits.flags & SHALE_FORMAT_VALUES) {
    all.push_back({"run", "step", SHALE_ITEM_VALUE, SHALE_ROLE_RUN, ""});
    all.back().value.type = SHALE_OPT_INT, all.back().value.i = 9007199254740993;
  }
  return all;
}

struct Part {  // one write call
  std::vector<shale_item> items;
  std::vector<shale_box> boxes;
  std::vector<shale_entry> entries;
  std::vector<const shale_entry*> pointers;
  std::vector<std::string> bytes;
  std::string report;
};

void add_entry(Part& part, const Thing& thing, std::int64_t first, std::int64_t rows) {
  SHALE_VAR(shale_box, box);
  box.ndim = 2;
  box.begin[0] = first, box.extent[0] = rows, box.extent[1] = kColumns;
  const std::size_t row = kColumns * sizeof(float);
  const bool tensor = thing.kind == SHALE_ITEM_TENSOR;
  part.items.push_back(thing.item());
  part.boxes.push_back(box);
  part.bytes.push_back(
      tensor ? thing.bytes.substr(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(rows) * row)
             : thing.bytes);
}

void link(Part& part) {
  for (std::size_t k = 0; k < part.items.size(); ++k) {
    SHALE_VAR(shale_entry, e);
    e.item = &part.items[k], e.bytes = part.bytes[k].size();
    e.box = part.items[k].kind == SHALE_ITEM_TENSOR ? &part.boxes[k] : nullptr;
    part.entries.push_back(e);
  }
  for (auto& e : part.entries) part.pointers.push_back(&e);
}

std::vector<Part> parts_of(const std::vector<Thing>& all, const shale_format& traits) {
  const bool cut = (traits.flags & SHALE_FORMAT_BOXES) && !(traits.flags & SHALE_FORMAT_ONE_WRITER);
  std::vector<Part> parts(cut ? 2 : 1);
  for (auto& thing : all) {
    const bool halves = cut && thing.kind == SHALE_ITEM_TENSOR;
    add_entry(parts[0], thing, 0, halves ? kCut : kRows);
    if (halves) add_entry(parts[1], thing, kCut, kRows - kCut);
  }
  for (auto& part : parts) link(part);
  return parts;
}

shale_status* data_of(void* ctx, std::uint32_t k, const void** bytes) {
  *bytes = static_cast<Part*>(ctx)->bytes[k].data();
  return nullptr;
}
shale_status* report_of(void* ctx, const void* bytes, std::uint64_t n) {
  static_cast<Part*>(ctx)->report.append(static_cast<const char*>(bytes), n);
  return nullptr;
}

// Everything written and finished; throws with the plugin's words when it refuses.
void save(Format& f, const std::vector<Thing>& all) {
  auto parts = parts_of(all, f.traits);
  std::vector<shale_str> reports;
  std::uint64_t total = 0;
  for (std::uint32_t w = 0; w < parts.size(); ++w) {
    const auto n = static_cast<std::uint32_t>(parts.size());
    const shale_save call{sizeof call,
                          w,
                          n,
                          0,
                          1,
                          static_cast<std::uint32_t>(parts[w].entries.size()),
                          w,
                          n,
                          3,
                          f.folder.get(),
                          parts[w].pointers.data(),
                          &parts[w],
                          data_of,
                          report_of};
    const Answer a = f.host.take(f.table.write(f.plugin.self(), &call));
    if (a.code != 0) throw std::runtime_error("write: " + to_text(a));
    f.folder.close_all();
  }
  for (auto& part : parts) {
    reports.push_back({part.report.data(), part.report.size()});
    for (auto& e : part.entries) total += e.item->kind == SHALE_ITEM_TENSOR ? e.bytes : 0;
  }
  if (f.table.finish == nullptr) return;
  const shale_finish call{
      sizeof call, static_cast<std::uint32_t>(reports.size()), 3, total, f.folder.get(), reports.data(), nullptr,
      {"{}", 2}};
  const Answer a = f.host.take(f.table.finish(f.plugin.self(), &call));
  if (a.code != 0) throw std::runtime_error("finish: " + to_text(a));
  f.folder.close_all();
}

struct Sink {  // what describe says, with the bytes fetched
  struct Found {
    std::string name, key;
    std::uint32_t kind = 0, role = 0, dtype = 0;
    std::int64_t value = 0;
    std::size_t filled = 0;
    std::string bytes;
  };
  Format& f;
  std::vector<Found> items;

  void put(std::uint32_t item, const shale_box* box, const std::string& bytes) {
    const std::size_t row = kColumns * sizeof(float);
    const std::size_t at =
        box == nullptr || items[item].kind != SHALE_ITEM_TENSOR ? 0 : static_cast<std::size_t>(box->begin[0]) * row;
    auto& to = items[item];
    if (at > 4096 || bytes.size() > 4096) return;  // damaged: the host would refuse it here
    if (to.bytes.size() < at + bytes.size()) to.bytes.resize(at + bytes.size());
    to.bytes.replace(at, bytes.size(), bytes);
    to.filled += bytes.size();
  }
  // Bytes the item or box says there are.
  std::uint64_t size_of(std::uint32_t item, const shale_box* box) const {
    if (box == nullptr || box->ndim > SHALE_MAX_DIMS) return 0;
    std::uint64_t n = SHALE_DTYPE_BITS(items[item].dtype) / 8;
    for (std::uint32_t d = 0; d < box->ndim; ++d) n *= static_cast<std::uint64_t>(box->extent[d]);
    return n;
  }
};

shale_status* add_item(void* ctx, const shale_item* i, std::uint32_t* id) {
  auto& sink = *static_cast<Sink*>(ctx);
  *id = static_cast<std::uint32_t>(sink.items.size());
  sink.items.push_back({std::string(i->name.ptr, i->name.len), std::string(i->key.ptr, i->key.len), i->kind, i->role,
                        i->dtype, i->kind == SHALE_ITEM_VALUE && i->value ? i->value->i : 0, 0, ""});
  return nullptr;
}
shale_status* add_raw(void* ctx, std::uint32_t item, const shale_box* box, shale_str file, std::uint64_t offset) {
  auto& sink = *static_cast<Sink*>(ctx);
  auto& files = sink.f.folder.files;
  const auto found = files.find(std::string(file.ptr, file.len));
  if (item >= sink.items.size() || found == files.end())
    return sink.f.host.make(SHALE_CORRUPT, "add_raw", "no such item or file");
  const std::uint64_t n = sink.size_of(item, box), size = found->second.size();
  if (offset > size || n > size - offset) return sink.f.host.make(SHALE_CORRUPT, found->first, "box past the end");
  sink.put(item, box, found->second.substr(offset, n));
  return nullptr;
}
shale_status* add_coded(void* ctx, std::uint32_t item, const shale_box* box, shale_str token, std::uint64_t n) {
  auto& sink = *static_cast<Sink*>(ctx);
  if (item >= sink.items.size() || n > 4096) return sink.f.host.make(SHALE_CORRUPT, "add_coded", "item or length");
  std::string bytes(n, '\0');
  shale_status* bad = sink.f.host.make(SHALE_UNSUPPORTED, "read", "neither locate nor read can fetch a coded box");
  if (sink.f.table.read != nullptr) {
    sink.f.host.take(bad);
    bad = sink.f.table.read(sink.f.plugin.self(), sink.f.folder.get(), token, bytes.data(), n);
  }
  if (bad == nullptr) sink.put(item, box, bytes);
  return bad;
}

Answer describe(Format& f, Sink& sink) {
  const shale_index index{sizeof index, 0, &sink, add_item, add_raw, add_coded};
  const Answer a = f.host.take(f.table.describe(f.plugin.self(), f.folder.get(), &index));
  f.folder.close_all();
  return a;
}

void compare(const std::vector<Thing>& all, const Sink& sink, Problems& out) {
  for (auto& thing : all) {
    const std::string name = thing.name + " " + thing.key;
    const auto found = std::find_if(sink.items.begin(), sink.items.end(), [&](const Sink::Found& i) {
      return i.name == thing.name && i.key == thing.key && i.role == thing.role;
    });
    if (found == sink.items.end()) {
      out.push_back(name + " did not come back");
    } else if (found->kind != thing.kind) {
      out.push_back(name + " came back as another kind");
    } else if (thing.kind == SHALE_ITEM_VALUE ? found->value != thing.value.i : found->bytes != thing.bytes) {
      out.push_back(name + " came back changed");
    } else if (found->filled != thing.bytes.size()) {
      out.push_back(name + " is described more than once");
    }
  }
  if (sink.items.size() > all.size()) out.push_back("describe names items that were not written");
}

// One way to damage a file; k picks it.
void damage(std::string& content, std::uint32_t k) {
  const std::size_t at = content.empty() ? 0 : (k * 2654435761u) % content.size();
  if (k % 4 == 0) content.resize(at);
  if (k % 4 == 1 && !content.empty()) content[at] = static_cast<char>(content[at] ^ (1 << (k / 4 % 8)));
  if (k % 4 == 2) content.insert(at, "9999999999");
  if (k % 4 == 3 && !content.empty()) content[at] = static_cast<char>(k / 4);
}

}  // namespace

Problems check_format(const Subject& subject) {
  const Library library(subject.file);
  if (!has_format(library)) return {};
  Format f(library);
  Problems out;
  shale_format guarded[2];
  std::memset(guarded, 0x5a, sizeof guarded);
  guarded[0].struct_size = sizeof guarded[0];
  f.host.take(f.table.format(f.plugin.self(), guarded));
  const auto* byte = reinterpret_cast<const unsigned char*>(guarded);
  if (std::any_of(byte + sizeof guarded[0], byte + sizeof guarded, [](auto b) { return b != 0x5a; }))
    out.push_back("format writes past the caller's struct_size");
  if (f.traits.flags & ~kKnownFlags) out.push_back("flags has bits that no macro names");
  if (f.traits.dtypes == nullptr) return {"dtypes is NULL"};
  bool fp32 = false;
  for (int k = 0; f.traits.dtypes[k] != 0; ++k) {
    fp32 = fp32 || f.traits.dtypes[k] == SHALE_F32;
    if (k == 64) return {"dtypes does not end with 0"};
  }
  if (!fp32) out.push_back("cannot hold fp32, the format of masters");
  return out;
}

Problems check_round_trip(const Subject& subject) {
  const Library library(subject.file);
  if (!has_format(library)) return {};
  Format writer(library), reader(library);
  const auto all = things(writer.traits);
  save(writer, all);
  reader.folder.files = writer.folder.files;
  Problems out;
  if (reader.table.probe != nullptr && reader.table.probe(reader.plugin.self(), reader.folder.get()) == 0)
    out.push_back("probe does not know its own folder");
  reader.folder.close_all();
  Sink sink{reader, {}};
  if (const Answer a = describe(reader, sink); a.code != 0) return {"describe: " + to_text(a)};
  compare(all, sink, out);
  if (writer.host.live() + reader.host.live() != 0) out.push_back("a status was made and not handed on");
  return out;
}

Problems check_damage(const Subject& subject) {
  const Library library(subject.file);
  if (!has_format(library)) return {};
  Format f(library);
  save(f, things(f.traits));
  const auto whole = f.folder.files;
  Problems out;
  for (auto& [name, content] : whole)
    for (std::uint32_t k = 0; k < 2000 && out.empty(); ++k) {
      f.folder.files = whole;
      damage(f.folder.files[name], k);
      if (k == 0) f.folder.files.erase(name);
      if (f.table.probe != nullptr) f.table.probe(f.plugin.self(), f.folder.get());
      f.folder.close_all();
      Sink sink{f, {}};
      const Answer a = describe(f, sink);
      if (a.code != 0 && a.text.empty()) out.push_back("refuses a damaged " + name + " without a text");
      if (f.host.live() != 0) out.push_back("leaks a status on a damaged " + name);
    }
  return out;
}

}  // namespace shale::conform

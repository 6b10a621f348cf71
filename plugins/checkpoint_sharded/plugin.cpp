// sharded: each writer puts its boxes into one safetensors file, rank 0 an index beside them. Nothing is moved between
// ranks, and any number of ranks reads any box.
#include <algorithm>
#include <numeric>

#include "index.h"

using namespace shale::sdk;
using sharded::Json;

class Sharded : public Checkpoint {
 public:
  static constexpr Info info{.id = "sharded",
                             .version = "0.1.0",
                             .summary = "each rank writes what it owns: safetensors files and a JSON index"};
  using Checkpoint::Checkpoint;

  void format(shale_format& out) override {
    out.flags =
        SHALE_FORMAT_BOXES | SHALE_FORMAT_BYTES | SHALE_FORMAT_VALUES | SHALE_FORMAT_OPTIMIZER | SHALE_FORMAT_ALIASES;
    out.dtypes = kHeld.data();
    out.file_bytes = 0;
  }

  void write(const shale_save& save) override {
    const std::vector<std::uint32_t> order = data_order(save);
    char name[64];
    std::snprintf(name, sizeof name, "data-%05u-of-%05u.safetensors", save.first_part + save.part, save.all_parts);
    Json entries = Json::array();
    std::uint64_t bytes = 0;
    const std::string header = header_of(save, order, entries, bytes);
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    shale_file* file = nullptr;
    ok(files.create(files.ctx, save.folder, str(name), &file));
    if (SHALE_HAS(&files, reserve) && files.reserve != nullptr)
      ok(files.reserve(files.ctx, file, header.size() + bytes));
    ok(files.append(files.ctx, file, header.data(), header.size()));
    for (const std::uint32_t k : order) {
      const void* data = nullptr;
      ok(save.data(save.ctx, k, &data));
      ok(files.append(files.ctx, file, data, save.entries[k]->bytes));
    }
    ok(files.close(files.ctx, file));
    const std::string report =
        Json{{"file", name}, {"header", sharded::fnv(header)}, {"entries", std::move(entries)}}.dump();
    ok(save.report(save.ctx, report.data(), report.size()));
  }

  void finish(const shale_finish& all) override {
    const std::string text = sharded::merge(all);
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    shale_file* file = nullptr;
    ok(files.create(files.ctx, all.folder, str(sharded::kIndexFile), &file));
    ok(files.append(files.ctx, file, text.data(), text.size()));
    ok(files.close(files.ctx, file));
  }

  std::uint32_t probe(shale_folder* folder) override {
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    std::uint32_t score = 0;
    shale_str name{};
    for (std::uint32_t k = 0; score < 2; ++k) {
      ok(files.list(files.ctx, folder, k, &name));
      if (name.len == 0) break;
      if (view(name) == sharded::kIndexFile) score += 1;
      if (view(name).starts_with("data-00000-of-") && view(name).ends_with(".safetensors")) score += 1;
    }
    return score;
  }

  void describe(shale_folder* folder, const shale_index& index) override {
    sharded::describe({*this, service<shale_files>(SHALE_FILES_SERVICE), folder}, index);
  }

 private:
  static constexpr auto kHeld = [] {
    std::array<std::uint32_t, std::size(sharded::kDtypes) + 1> out{};
    for (std::size_t k = 0; k + 1 < out.size(); ++k) out[k] = sharded::kDtypes[k].dtype;
    return out;
  }();

  // Entries with data, widest elements first: then every tensor is aligned, as in files of safetensors itself.
  static std::vector<std::uint32_t> data_order(const shale_save& save) {
    std::vector<std::uint32_t> order;
    for (std::uint32_t k = 0; k < save.n_entries; ++k)
      if (save.entries[k]->bytes > 0) order.push_back(k);
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::uint32_t k) { return SHALE_DTYPE_BITS(save.entries[k]->item->dtype); });
    return order;
  }

  static std::string tensor_name(const shale_entry& entry) {
    const shale_item& item = *entry.item;
    std::string name =
        std::to_string(item.role) + "/" + std::string(view(item.name)) + "/" + std::string(view(item.key));
    if (entry.box == nullptr) return name;
    for (std::uint32_t d = 0; d < entry.box->ndim; ++d) {
      const std::int64_t begin = entry.box->begin[d];
      name += (d == 0 ? "[" : ",") + std::to_string(begin) + ":" + std::to_string(begin + entry.box->extent[d]);
    }
    return entry.box->ndim > 0 ? name + "]" : name;
  }

  static std::vector<std::int64_t> extent_of(const shale_entry& entry) {
    if (entry.box == nullptr) return {static_cast<std::int64_t>(entry.bytes)};
    return {entry.box->extent, entry.box->extent + entry.box->ndim};
  }

  // The length and header of the file; `entries` for the report get absolute offsets.
  static std::string header_of(const shale_save& save, const std::vector<std::uint32_t>& order, Json& entries,
                               std::uint64_t& bytes) {
    Json header{{"__metadata__",
                 {{"format", "pt"},
                  {"shale_step", std::to_string(save.step)},
                  {"shale_part", std::to_string(save.first_part + save.part)}}}};
    for (const std::uint32_t k : order) {
      const shale_entry& entry = *save.entries[k];
      header[tensor_name(entry)] = {{"dtype", sharded::dtype_name(entry.item->dtype)},
                                    {"shape", extent_of(entry)},
                                    {"data_offsets", {bytes, bytes + entry.bytes}}};
      bytes += entry.bytes;
    }
    std::string text = header.dump();
    text.append((56 - text.size()) % 64, ' ');  // 8 + length is a multiple of 64, so the data is aligned
    if (text.size() > sharded::kLargestHeader)
      throw Error(SHALE_UNSUPPORTED, "checkpoint", "too many boxes for the header of one safetensors file");
    for (std::uint32_t k = 0; k < save.n_entries; ++k) entries.push_back(sharded::item_json(*save.entries[k]->item));
    std::uint64_t offset = 8 + text.size();
    for (const std::uint32_t k : order) {
      const shale_entry& entry = *save.entries[k];
      entries[k]["offset"] = offset;
      entries[k]["begin"] =
          entry.box ? std::vector(entry.box->begin, entry.box->begin + entry.box->ndim) : std::vector<std::int64_t>{0};
      entries[k]["extent"] = extent_of(entry);
      offset += entry.bytes;
    }
    std::string length(8, '\0');
    for (std::size_t k = 0; k < 8; ++k) length[k] = static_cast<char>(text.size() >> (8 * k));
    return length + text;
  }
};
SHALE_PLUGIN(Sharded)

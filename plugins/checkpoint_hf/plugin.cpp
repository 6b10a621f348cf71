// hf: what transformers' from_pretrained reads: config.json and whole weights in safetensors files, with an index where
// there are several.
#include <algorithm>
#include <set>

#include "header.h"
#include "weight_map.h"

using namespace shale::sdk;
using hf::Json;
using hf::Stored;

class HuggingFace : public Checkpoint {
 public:
  static constexpr Info info{
      .id = "hf", .version = "0.1.0", .summary = "a Hugging Face folder: config.json and weights in safetensors files"};
  using Checkpoint::Checkpoint;

  void format(shale_format& out) override {
    out.flags = 0;  // whole tensors that are weights, nothing else
    out.dtypes = kHeld;
    out.file_bytes = 5'000'000'000;
  }

  void write(const shale_save& save) override {
    const std::vector<std::uint32_t> order = data_order(save);
    const std::string header = hf::header_text(tensors_of(save, order));
    char name[64] = "model.safetensors";
    if (save.all_parts > 1)
      std::snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", save.first_part + save.part + 1,
                    save.all_parts);
    std::uint64_t bytes = header.size();
    Json names = Json::array();
    std::set<std::uint32_t> dtypes;
    for (const std::uint32_t k : order) {
      bytes += save.entries[k]->bytes;
      names.push_back(view(save.entries[k]->item->name));
      dtypes.insert(save.entries[k]->item->dtype);
    }
    const shale_files& files = service<shale_files>(SHALE_FILES_SERVICE);
    shale_file* file = nullptr;
    ok(files.create(files.ctx, save.folder, str(name), &file));
    if (SHALE_HAS(&files, reserve) && files.reserve != nullptr) ok(files.reserve(files.ctx, file, bytes));
    ok(files.append(files.ctx, file, header.data(), header.size()));
    for (const std::uint32_t k : order) {
      const void* data = nullptr;
      ok(save.data(save.ctx, k, &data));
      ok(files.append(files.ctx, file, data, save.entries[k]->bytes));
    }
    ok(files.close(files.ctx, file));
    const std::string report = Json{{"file", name}, {"names", names}, {"dtypes", dtypes}}.dump();
    ok(save.report(save.ctx, report.data(), report.size()));
  }

  void finish(const shale_finish& all) override {
    const hf::Folder folder = lent(all.folder);
    hf::WeightMap map;
    std::set<std::uint32_t> dtypes;
    for (std::uint32_t part = 0; part < all.n_reports; ++part) {
      const Json report = Json::parse(view(all.reports[part]));
      for (const Json& name : report.at("names")) map[name.get<std::string>()] = report.at("file").get<std::string>();
      dtypes.merge(report.at("dtypes").get<std::set<std::uint32_t>>());
    }
    if (all.n_reports == 0) folder.write(hf::kSingle, hf::header_text({}));
    if (all.n_reports > 1) folder.write(hf::kIndex, hf::weight_map_text(map, all.total_bytes));
    if (all.model_json.len > 0) folder.write(hf::kConfig, config_text(view(all.model_json), dtypes));
    if (all.assets != nullptr) copy_assets(folder, lent(all.assets));
  }

  std::uint32_t probe(shale_folder* where) override {
    bool config = false, weights = false;
    for (const std::string& name : lent(where).names()) {
      config |= name == hf::kConfig;
      weights |= name == hf::kSingle || name == hf::kIndex;
    }
    return !weights ? 0 : config ? 2 : 1;
  }

  void describe(shale_folder* where, const shale_index& index) override {
    const hf::Folder folder = lent(where);
    const std::vector<std::string> there = folder.names();
    const bool single = std::ranges::count(there, hf::kSingle) > 0, several = std::ranges::count(there, hf::kIndex) > 0;
    if (single && several) hf::corrupt(hf::kIndex, "is there beside model.safetensors; remove what is not the model");
    if (!single && !several) hf::corrupt(hf::kSingle, "is not there, nor model.safetensors.index.json");
    if (single) return add(index, hf::kSingle, hf::read_header(folder, hf::kSingle));
    hf::WeightMap map = hf::read_weight_map(folder);
    std::set<std::string> files;
    for (const auto& [name, file] : map) files.insert(file);
    for (const std::string& file : files) {
      if (std::ranges::count(there, file) == 0)
        hf::corrupt(hf::kIndex, "names the file " + hf::in_quotes(file) + ", which is not there");
      const std::vector<Stored> tensors = hf::read_header(folder, file);
      for (const Stored& t : tensors) check_off(map, t.name, file);
      add(index, file, tensors);
    }
    for (const auto& [name, file] : map)
      hf::corrupt(hf::kIndex, "places " + hf::in_quotes(name) + " in " + file + ", which does not hold it");
  }

 private:
  static constexpr std::uint32_t kHeld[] = {SHALE_F64, SHALE_F32, SHALE_F16, SHALE_BF16, 0};

  hf::Folder lent(shale_folder* folder) const { return {*this, service<shale_files>(SHALE_FILES_SERVICE), folder}; }

  // Widest elements first: then every tensor is aligned, as in files of safetensors itself.
  static std::vector<std::uint32_t> data_order(const shale_save& save) {
    std::vector<std::uint32_t> order(save.n_entries);
    for (std::uint32_t k = 0; k < save.n_entries; ++k) order[k] = k;
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::uint32_t k) { return SHALE_DTYPE_BITS(save.entries[k]->item->dtype); });
    return order;
  }

  static std::vector<Stored> tensors_of(const shale_save& save, const std::vector<std::uint32_t>& order) {
    std::vector<Stored> out;
    std::uint64_t at = 0;
    for (const std::uint32_t k : order) {
      const shale_item& item = *save.entries[k]->item;
      const std::string name(view(item.name));
      if (item.kind != SHALE_ITEM_TENSOR || item.role != SHALE_ROLE_WEIGHT || view(item.key) != "weight")
        throw Error(SHALE_UNSUPPORTED, name + " " + std::string(view(item.key)),
                    "is no weight, and this format holds nothing else; save with another one and convert");
      out.push_back({name, item.dtype, {item.shape, item.shape + item.ndim}, at, at + save.entries[k]->bytes});
      at = out.back().end;
    }
    return out;
  }

  // The model as it was, but for the type of its weights, by which transformers chooses its own.
  static std::string config_text(std::string_view model, const std::set<std::uint32_t>& dtypes) {
    auto json = nlohmann::ordered_json::parse(model, nullptr, false);
    if (!json.is_object() || dtypes.size() != 1) return std::string(model);
    const std::uint32_t d = *dtypes.begin();
    json.erase("dtype");
    json["torch_dtype"] = d == SHALE_F64   ? "float64"
                          : d == SHALE_F32 ? "float32"
                          : d == SHALE_F16 ? "float16"
                                           : "bfloat16";
    return json.dump(2) + "\n";
  }

  // What belongs to the model and is no weight, by the names that transformers gives.
  static void copy_assets(const hf::Folder& to, const hf::Folder& from) {
    static constexpr std::string_view kAssets[] = {
        "added_tokens.json", "chat_template.jinja", "generation_config.json", "merges.txt", "special_tokens_map.json",
        "tokenizer.json",    "tokenizer.model",     "tokenizer_config.json",  "vocab.json", "vocab.txt"};
    for (const std::string& name : from.names())
      if (std::ranges::count(kAssets, name) > 0) to.copy(name, from);
  }

  static void check_off(hf::WeightMap& map, const std::string& name, const std::string& file) {
    const auto entry = map.find(name);
    if (entry == map.end())
      hf::corrupt(file, "holds the tensor " + hf::in_quotes(name) + ", which the index does not list");
    if (entry->second != file)
      hf::corrupt(file, "holds the tensor " + hf::in_quotes(name) + ", which the index places in " + entry->second);
    map.erase(entry);
  }

  // Some old files hold what follows from config.json: transformers passes it over, and so do we.
  static bool is_rotary(std::string_view name) {
    return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_emb.cos_cached") ||
           name.ends_with("rotary_emb.sin_cached");
  }

  void add(const shale_index& index, const std::string& file, const std::vector<Stored>& tensors) const {
    for (const Stored& t : tensors) {
      if (is_rotary(t.name)) continue;
      SHALE_VAR(shale_item, item);
      SHALE_VAR(shale_box, box);
      item.kind = SHALE_ITEM_TENSOR, item.role = SHALE_ROLE_WEIGHT, item.dtype = t.dtype;
      item.name = str(t.name), item.key = str("weight");
      item.ndim = box.ndim = static_cast<std::uint32_t>(t.shape.size());
      std::ranges::copy(t.shape, item.shape);
      std::ranges::copy(t.shape, box.extent);
      std::uint32_t id = 0;
      ok(index.add_item(index.ctx, &item, &id));
      if (t.end > t.begin) ok(index.add_raw(index.ctx, id, &box, str(file), t.begin));
    }
  }
};
SHALE_PLUGIN(HuggingFace)

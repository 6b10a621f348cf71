#include "metadata.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "tensors.h"

using shale::sdk::str;
using torch_file::Archive;
using torch_file::Id;
using torch_file::Kind;
using torch_file::Pickle;
using torch_file::shown;
using torch_file::Tensor;

namespace dcp {
namespace {

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";
constexpr char kOlder[] = "torch.distributed._shard.sharded_tensor.metadata";
constexpr std::size_t kMostOpen = 64;
constexpr int kDeepest = 32;

std::vector<torch_file::Global> globals() {
  std::vector<torch_file::Global> out = torch_file::tensor_globals();
  for (const char* name : {"Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata",
                           "BytesStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"})
    out.push_back({kModule, name});
  out.push_back({kOlder, "TensorProperties"});
  out.push_back({kOlder, "MEM_FORMAT_ENCODING"});
  out.push_back({"torch.distributed.checkpoint.filesystem", "_StorageInfo"});
  out.push_back({"torch.serialization", "_get_layout"});
  out.push_back({"builtins", "getattr"});  // kept as data like all the others: PyTorch spells its enums so
  out.push_back({"pathlib", "PosixPath"});
  out.push_back({"pathlib._local", "PosixPath"});
  return out;
}

// A part of a file: one item, a whole file of torch.save in itself.
class Part final : public torch_file::Source {
 public:
  Part(Source& file, std::uint64_t begin, std::uint64_t n) : Source(file.name()), file_(file), begin_(begin), n_(n) {
    if (begin > file.size() || n > file.size() - begin)
      file.corrupt(begin, "an item of " + std::to_string(n) + " bytes reaches past the end");
  }
  std::uint64_t size() const override { return n_; }
  void read(std::uint64_t offset, void* to, std::uint64_t n) override { file_.read(begin_ + offset, to, n); }

 private:
  Source& file_;
  std::uint64_t begin_, n_;
};

struct Place {
  std::string file;
  std::uint64_t offset = 0, length = 0;
};

struct Name {
  std::uint32_t role;
  std::string name, key;
};

class Reader {
 public:
  Reader(const shale::sdk::Plugin& plugin, shale_folder* folder, const shale_index& index)
      : plugin_(plugin),
        folder_(folder),
        index_(index),
        globals_(globals()),
        file_(plugin, folder, kMetadata),
        metadata_(file_, "metadata", text_of(file_), globals_) {}

  void describe() {
    const Id root = metadata_.root();
    read_places(field(root, "storage_data"));
    read_paths(root);
    for (const char* list : {"shale.buffers", "shale.bytes"})
      if (const auto own = places_.find(list); own != places_.end()) read_lists(list, own->second);
    each(field(root, "state_dict_metadata"), [&](const std::string& fqn, Id entry) {
      if (fqn.starts_with("shale.")) return;
      if (state(entry) && metadata_.find(*state(entry), "chunks"))
        add_tensor(fqn, entry);
      else
        add_bytes(fqn);
    });
  }

 private:
  using Visit = std::function<void(const std::string&, Id)>;

  static std::string text_of(torch_file::Source& file) {
    if (file.size() > kLargestMetadata) file.corrupt(std::to_string(file.size()) + " bytes are too many");
    return file.bytes(0, file.size());
  }

  // The dict of attributes of an object, or NULL.
  const Id* state(Id object) const {
    if (metadata_.kind(object) != Kind::call || metadata_.items(object).size() != 3) return nullptr;
    return &metadata_.items(object)[2];
  }
  Id field(Id object, const char* name) const {
    const Id* dict = state(object);
    const Id* found = dict ? metadata_.find(*dict, name) : nullptr;
    if (!found) metadata_.corrupt(std::string("'") + name + "' is missing");
    return *found;
  }
  std::string text(Id id, const char* what) const {
    if (metadata_.kind(id) != Kind::text) metadata_.corrupt(std::string(what) + " is no text");
    return std::string(metadata_[id].text);
  }
  std::uint64_t natural(Id id, const char* what) const {
    if (metadata_.kind(id) != Kind::integer || metadata_[id].integer < 0)
      metadata_.corrupt(std::string(what) + " is no size");
    return static_cast<std::uint64_t>(metadata_[id].integer);
  }
  void each(Id dict, const Visit& visit) const {
    if (metadata_.kind(dict) != Kind::dict) metadata_.corrupt("a dict is none");
    const auto items = metadata_.items(dict);
    for (std::size_t k = 0; k + 1 < items.size(); k += 2) visit(text(items[k], "a name"), items[k + 1]);
  }

  // The name of a chunk: that of the item and, for tensors, where it begins.
  static std::string chunk_key(const std::string& fqn, const std::vector<std::int64_t>& begin) {
    std::string out = fqn;
    for (const std::int64_t n : begin) out += '\n' + std::to_string(n);
    return out;
  }

  void read_places(Id dict) {
    if (metadata_.kind(dict) != Kind::dict) metadata_.corrupt("'storage_data' is no dict");
    const auto items = metadata_.items(dict);
    for (std::size_t k = 0; k + 1 < items.size(); k += 2) {
      const std::string fqn = text(field(items[k], "fqn"), "a name");
      const Id* offset = metadata_.find(*state(items[k]), "offset");
      const bool begins = offset && metadata_.kind(*offset) != Kind::none;
      const std::string key = chunk_key(fqn, begins ? sizes_of(metadata_, *offset) : std::vector<std::int64_t>{});
      const Id info = items[k + 1];
      const Id* transform = state(info) ? metadata_.find(*state(info), "transform_descriptors") : nullptr;
      if (transform && metadata_.kind(*transform) != Kind::none)
        file_.unsupported(shown(fqn) + " is stored through a transform, which cannot be read");
      const Place place{text(field(info, "relative_path"), "a path"), natural(field(info, "offset"), "an offset"),
                        natural(field(info, "length"), "a length")};
      if (!places_.emplace(key, place).second) metadata_.corrupt("a chunk of " + shown(fqn) + " is there twice");
    }
  }

  void read_paths(Id root) {
    const Id* paths = metadata_.find(*state(root), "planner_data");
    if (!paths || metadata_.kind(*paths) != Kind::dict) return;
    each(*paths, [&](const std::string& fqn, Id tuple) {
      if (metadata_.kind(tuple) != Kind::tuple || metadata_.items(tuple).empty()) return;
      const Id first = metadata_.items(tuple)[0];
      if (metadata_.kind(first) == Kind::text)
        tops_[fqn] = metadata_.items(tuple).size() > 1 ? metadata_[first].text : "";
    });
    for (const auto& [fqn, top] : tops_) wrapped_ = wrapped_ || is_model(top);
  }

  static bool is_model(const std::string& top) {
    return top == "model" || top == "model_state_dict" || top == "state_dict" || top == "module";
  }

  Name name_of(const std::string& fqn) const {
    const auto known = tops_.find(fqn);
    const std::string top = known == tops_.end() ? "" : known->second;
    const std::string rest = top.empty() ? "" : fqn.substr(std::min(fqn.size(), top.size() + 1));
    if (is_model(top)) {
      const bool buffer = buffers_.contains(rest);
      return {buffer ? SHALE_ROLE_BUFFER : SHALE_ROLE_WEIGHT, rest, buffer ? "buffer" : "weight"};
    }
    const std::size_t first = fqn.find('.'), last = fqn.rfind('.');
    const std::string before = fqn.substr(0, first);
    const bool states = first != std::string::npos && fqn.compare(first, 7, ".state.") == 0 && last > first + 7;
    if (states && (before == "optimizer" || before == "optim"))
      return {SHALE_ROLE_OPTIMIZER, fqn.substr(first + 7, last - first - 7), fqn.substr(last + 1)};
    if (before == "optimizer" || before == "optim") return {SHALE_ROLE_RUN, "run", fqn};
    if (own_ && top == "run") return {SHALE_ROLE_RUN, "run", rest};
    if (own_ && top == "plugins") {
      const std::size_t dot = rest.find('/');
      return {SHALE_ROLE_PLUGIN, rest.substr(0, dot), dot == std::string::npos ? "" : rest.substr(dot + 1)};
    }
    if (wrapped_) return {SHALE_ROLE_RUN, "run", fqn};
    return {SHALE_ROLE_WEIGHT, fqn, "weight"};
  }

  torch_file::Source& open(const std::string& name) {
    if (const auto known = open_.find(name); known != open_.end()) return *known->second;
    if (open_.size() >= kMostOpen) open_.clear();
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name == ".." ||
        name.size() > 100)
      file_.unsupported("names the file " + shown(name) + ", which is no plain file of the folder");
    return *open_.emplace(name, std::make_unique<torch_file::FileSource>(plugin_, folder_, name)).first->second;
  }

  // Calls visit with the archive and the pickle of one item.
  template <class V>
  void with_item(const Place& place, V&& visit) {
    Part part(open(place.file), place.offset, place.length);
    const Archive archive(part);
    const Pickle pickle(part, "data.pkl", archive.text("data.pkl", kLargestItem), globals_);
    visit(archive, pickle);
  }

  void read_lists(const std::string& fqn, const Place& place) {
    own_ = true;
    with_item(place, [&](const Archive&, const Pickle& pickle) {
      if (pickle.kind(pickle.root()) != Kind::text) pickle.corrupt(shown(fqn) + " is no text");
      std::string_view rest = pickle[pickle.root()].text;
      while (!rest.empty()) {
        const std::size_t n = std::min(rest.find(' '), rest.size());
        (fqn == "shale.buffers" ? buffers_ : bytes_).emplace(rest.substr(0, n));
        rest.remove_prefix(std::min(n + 1, rest.size()));
      }
    });
  }

  void add_tensor(const std::string& fqn, Id entry) {
    const Name name = name_of(fqn);
    const Id properties = field(entry, "properties");
    const Id* facts = state(properties);
    if (!facts || metadata_.kind(*facts) != Kind::tuple || metadata_.items(*facts).empty())
      metadata_.corrupt("the properties of " + shown(fqn) + " are none");
    SHALE_VAR(shale_item, item);
    item.kind = bytes_.contains(fqn) ? SHALE_ITEM_BYTES : SHALE_ITEM_TENSOR;
    item.role = name.role, item.name = str(name.name), item.key = str(name.key);
    item.dtype = dtype_of(metadata_, metadata_.items(*facts)[0]);
    const std::vector<std::int64_t> shape = sizes_of(metadata_, field(entry, "size"));
    item.ndim = static_cast<std::uint32_t>(shape.size());
    std::ranges::copy(shape, item.shape);
    const Id chunks = field(entry, "chunks");
    if (metadata_.kind(chunks) != Kind::list) metadata_.corrupt("the chunks of " + shown(fqn) + " are no list");
    if (name.role == SHALE_ROLE_OPTIMIZER && name.key == "step" && item.dtype == SHALE_F32 && shape.empty() &&
        add_steps(name, fqn))
      return;
    std::uint32_t number = 0;
    plugin_.ok(index_.add_item(index_.ctx, &item, &number));
    for (const Id chunk : metadata_.items(chunks)) add_chunk(fqn, item, number, chunk);
  }

  void add_chunk(const std::string& fqn, const shale_item& item, std::uint32_t number, Id chunk) {
    const std::vector<std::int64_t> begin = sizes_of(metadata_, field(chunk, "offsets"));
    const std::vector<std::int64_t> extent = sizes_of(metadata_, field(chunk, "sizes"));
    if (begin.size() != item.ndim || extent.size() != item.ndim)
      metadata_.corrupt("a chunk of " + shown(fqn) + " has other dimensions than the tensor");
    if (std::ranges::find(extent, 0) != extent.end()) return;  // an empty shard may stand where a real one begins
    const auto place = places_.find(chunk_key(fqn, begin));
    if (place == places_.end()) metadata_.corrupt("a chunk of " + shown(fqn) + " is in no file");
    with_item(place->second, [&](const Archive& archive, const Pickle& pickle) {
      if (!is_tensor(pickle, pickle.root())) pickle.corrupt("the item of " + shown(fqn) + " is no tensor");
      Tensor tensor = tensor_of(pickle, pickle.root(), archive);
      if (tensor.dtype != item.dtype || tensor.shape != extent)
        pickle.corrupt("the item of " + shown(fqn) + " has another shape or dtype than .metadata says");
      tensor.offset += place->second.offset;
      SHALE_VAR(shale_box, box);
      box.ndim = item.ndim;
      std::ranges::copy(begin, box.begin);
      std::ranges::copy(extent, box.extent);
      const std::string& file = place->second.file;
      if (tensor.row_major()) return plugin_.ok(index_.add_raw(index_.ctx, number, &box, str(file), tensor.offset));
      const std::string token = token_of(tensor, file);
      plugin_.ok(index_.add_coded(index_.ctx, number, &box, str(token), tensor.numel() * tensor.width()));
    });
  }

  // AdamW of PyTorch keeps the number of updates as a tensor of one float; shale as an integer.
  bool add_steps(const Name& name, const std::string& fqn) {
    const auto place = places_.find(fqn);
    if (place == places_.end()) return false;
    float steps = -1;
    with_item(place->second, [&](const Archive& archive, const Pickle& pickle) {
      if (!is_tensor(pickle, pickle.root())) return;
      const Tensor tensor = tensor_of(pickle, pickle.root(), archive);
      if (tensor.dtype == SHALE_F32 && tensor.numel() == 1) archive.source().read(tensor.offset, &steps, sizeof steps);
    });
    if (!(steps >= 0) || steps >= 1e9F || steps != std::floor(steps)) return false;
    shale_value value{};
    value.is_set = 1, value.type = SHALE_OPT_INT, value.i = std::lround(steps);
    add_value(name, value);
    return true;
  }

  void add_value(const Name& name, const shale_value& value) {
    SHALE_VAR(shale_item, item);
    item.kind = SHALE_ITEM_VALUE, item.role = name.role, item.value = &value;
    item.name = str(name.name), item.key = str(name.key);
    std::uint32_t number = 0;
    plugin_.ok(index_.add_item(index_.ctx, &item, &number));
  }

  void add_bytes(const std::string& fqn) {
    const auto place = places_.find(fqn);
    if (place == places_.end()) metadata_.corrupt(shown(fqn) + " is in no file");
    Name name = name_of(fqn);
    if (name.role == SHALE_ROLE_WEIGHT) name = {SHALE_ROLE_RUN, "run", fqn};
    with_item(place->second, [&](const Archive&, const Pickle& pickle) {
      std::uint64_t visited = 0;
      const std::function<void(const Name&, Id, int)> walk = [&](const Name& at, Id id, int depth) {
        if (depth > kDeepest || ++visited > pickle.size()) pickle.corrupt("is nested too deep, or holds itself");
        if (at.key.size() > 255) pickle.corrupt("the name " + shown(at.key) + " is too long");
        const Kind kind = pickle.kind(id);
        if (kind == Kind::list || kind == Kind::tuple) {
          for (std::size_t k = 0; k < pickle.items(id).size(); ++k)
            walk({at.role, at.name, at.key + "." + std::to_string(k)}, pickle.items(id)[k], depth + 1);
        } else if (kind == Kind::integer || kind == Kind::boolean || kind == Kind::real || kind == Kind::text) {
          shale_value value{};
          value.is_set = 1, value.type = SHALE_OPT_INT, value.i = pickle[id].integer;
          if (kind == Kind::real) value.type = SHALE_OPT_FLOAT, value.f = pickle.real(id);
          if (kind == Kind::text) value.type = SHALE_OPT_TEXT, value.s = str(pickle[id].text);
          add_value(at, value);
        }
      };
      walk(name, pickle.root(), 0);
    });
  }

  const shale::sdk::Plugin& plugin_;
  shale_folder* folder_;
  const shale_index& index_;
  const std::vector<torch_file::Global> globals_;
  torch_file::FileSource file_;
  const Pickle metadata_;
  std::map<std::string, Place> places_;      // by chunk_key
  std::map<std::string, std::string> tops_;  // first part of a nested name; "" when it is not nested
  std::set<std::string> buffers_, bytes_;
  bool wrapped_ = false, own_ = false;
  std::map<std::string, std::unique_ptr<torch_file::FileSource>> open_;
};

}  // namespace

void describe(const shale::sdk::Plugin& plugin, shale_folder* folder, const shale_index& index) {
  Reader(plugin, folder, index).describe();
}

}  // namespace dcp

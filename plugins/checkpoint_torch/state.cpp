#include "state.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

using shale::sdk::str;

namespace torch_file {
namespace {

constexpr int kDeepest = 32;
constexpr std::size_t kLongestName = 255;

struct Name {
  std::uint32_t role;
  std::string name, key;
};

bool is_value(Kind kind) {
  return kind == Kind::integer || kind == Kind::real || kind == Kind::boolean || kind == Kind::text;
}

class State {
 public:
  State(const shale::sdk::Plugin& plugin, Archive& archive, const shale_index& index)
      : plugin_(plugin),
        archive_(archive),
        index_(index),
        globals_(tensor_globals()),
        pickle_(archive.source(), "data.pkl", archive.text("data.pkl", kLargestPickle), globals_) {}

  void describe() {
    const Id root = pickle_.root();
    if (pickle_.kind(root) != Kind::dict) pickle_.corrupt("holds no dict of tensors");
    if (const Id* own = pickle_.find(root, "shale"))
      read_own(root, *own);
    else
      read_foreign(root);
  }

 private:
  using Visit = std::function<void(const std::string& path, Id)>;

  std::string key_text(Id id) const {
    if (pickle_.kind(id) == Kind::integer) return std::to_string(pickle_[id].integer);
    if (pickle_.kind(id) != Kind::text) pickle_.corrupt("a dict has a key that is neither text nor an integer");
    return std::string(pickle_[id].text);
  }

  void each(Id dict, const char* what, const Visit& visit) const {
    if (pickle_.kind(dict) != Kind::dict) pickle_.corrupt(std::string(what) + " is no dict");
    const auto items = pickle_.items(dict);
    for (std::size_t k = 0; k + 1 < items.size(); k += 2) visit(key_text(items[k]), items[k + 1]);
  }

  // All tensors and values below, with dotted paths. A file may name itself inside itself, or one thing very often.
  void walk(const std::string& path, Id id, const Visit& leaf, int depth = 0) {
    if (depth > kDeepest || ++visited_ > pickle_.size()) pickle_.corrupt("is nested too deep, or holds itself");
    if (path.size() > kLongestName) pickle_.corrupt("the name " + shown(path) + " is too long");
    const Kind kind = pickle_.kind(id);
    const std::string before = path.empty() ? "" : path + ".";
    if (is_tensor(pickle_, id) || is_value(kind)) {
      leaf(path, id);
    } else if (kind == Kind::dict) {
      each(id, "", [&](const std::string& key, Id value) { walk(before + key, value, leaf, depth + 1); });
    } else if (kind == Kind::list || kind == Kind::tuple) {
      for (std::size_t k = 0; k < pickle_.items(id).size(); ++k)
        walk(before + std::to_string(k), pickle_.items(id)[k], leaf, depth + 1);
    } else if (kind == Kind::persistent) {
      pickle_.corrupt(shown(path) + " is neither a tensor nor a number, a text or a list of such");
    }
  }

  // ---- files of this plugin
  void read_own(Id root, Id own) {
    const Id* version = pickle_.find(own, "version");
    if (!version || pickle_.kind(*version) != Kind::integer || pickle_[*version].integer != 1)
      archive_.source().unsupported("was written in a version of this format that is not known");
    const std::set<std::string> buffers = texts(own, "buffers"), bytes = texts(own, "bytes");
    const auto leaf = [&](const Name& name, Id id) { add(name, id, bytes); };
    each(root, "the file", [&](const std::string& section, Id id) {
      const char* what = "a section of the file";
      if (section == "model") {
        each(id, what, [&](const std::string& name, Id value) {
          const bool buffer = buffers.contains(name);
          leaf({buffer ? SHALE_ROLE_BUFFER : SHALE_ROLE_WEIGHT, name, buffer ? "buffer" : "weight"}, value);
        });
      } else if (section == "run") {
        each(id, what, [&](const std::string& key, Id value) { leaf({SHALE_ROLE_RUN, "run", key}, value); });
      } else if (section == "plugins" || section == "optimizer") {
        const Id* names = section == "plugins" ? &id : pickle_.find(id, "state");
        if (!names) pickle_.corrupt("the optimizer has no state");
        const std::uint32_t role = section == "plugins" ? SHALE_ROLE_PLUGIN : SHALE_ROLE_OPTIMIZER;
        each(*names, what, [&](const std::string& name, Id keys) {
          each(keys, what, [&](const std::string& key, Id value) { leaf({role, name, key}, value); });
        });
      } else if (section != "shale") {
        pickle_.corrupt("has the section " + shown(section) + ", which is not known");
      }
    });
  }

  std::set<std::string> texts(Id own, const char* key) const {
    std::set<std::string> out;
    const Id* list = pickle_.find(own, key);
    if (!list || pickle_.kind(*list) != Kind::list) pickle_.corrupt(std::string("has no list of ") + key);
    for (const Id id : pickle_.items(*list)) out.insert(key_text(id));
    return out;
  }

  void add(const Name& name, Id id, const std::set<std::string>& bytes) {
    if (++visited_ > pickle_.size()) pickle_.corrupt("holds one thing very often");
    const std::string path = std::to_string(name.role) + "/" + name.name + "/" + name.key;
    if (is_value(pickle_.kind(id))) return add_value(name, id);
    if (!is_tensor(pickle_, id)) pickle_.corrupt(shown(path) + " is neither a tensor nor a value");
    add_tensor(name, tensor_of(pickle_, id, archive_), bytes.contains(path) ? SHALE_ITEM_BYTES : SHALE_ITEM_TENSOR);
  }

  // ---- files of others
  void read_foreign(Id root) {
    const std::string model = model_key(root);
    static constexpr const char* kOptimizers[] = {"optimizer", "optim", "optimizer_state_dict", "optimizer_state"};
    const auto weight = [&](const std::string& path, Id id) {
      if (is_value(pickle_.kind(id))) return add_value({SHALE_ROLE_RUN, "run", path}, id);
      add_tensor({SHALE_ROLE_WEIGHT, path, "weight"}, tensor_of(pickle_, id, archive_), SHALE_ITEM_TENSOR);
    };
    each(root, "the file", [&](const std::string& key, Id id) {
      const bool optimizer = std::ranges::find(kOptimizers, key) != std::end(kOptimizers);
      if (key == model) return walk("", id, weight);
      if (optimizer && pickle_.kind(id) == Kind::dict) return read_optimizer(key, id);
      if (model.empty()) return walk(key, id, weight);
      walk(key, id, [&](const std::string& path, Id leaf) { add_other(path, leaf); });
    });
  }

  // The dict of weights inside a dict of several things, or nothing: then all of it is weights.
  std::string model_key(Id root) const {
    for (const char* key : {"model", "model_state_dict", "state_dict", "module"})
      if (const Id* found = pickle_.find(root, key); found && pickle_.kind(*found) == Kind::dict) return key;
    return "";
  }

  // {"state": {name: {key: ...}}}, or flat: "state.<name>.<key>".
  void read_optimizer(const std::string& prefix, Id dict) {
    constexpr std::string_view kState = "state.";
    each(dict, "", [&](const std::string& key, Id id) {
      const std::size_t dot = key.rfind('.');
      if (key == "state" && pickle_.kind(id) == Kind::dict) {
        each(id, "", [&](const std::string& name, Id keys) {
          walk("", keys, [&](const std::string& path, Id leaf) {
            add_moment({SHALE_ROLE_OPTIMIZER, name, path}, leaf);
          });
        });
      } else if (key.starts_with(kState) && dot >= kState.size()) {
        const Name name{SHALE_ROLE_OPTIMIZER, key.substr(kState.size(), dot - kState.size()), key.substr(dot + 1)};
        walk("", id, [&](const std::string& path, Id leaf) {
          add_moment({name.role, name.name, path.empty() ? name.key : name.key + "." + path}, leaf);
        });
      } else {
        walk(prefix + "." + key, id, [&](const std::string& path, Id leaf) { add_other(path, leaf); });
      }
    });
  }

  void add_other(const std::string& path, Id id) {
    if (is_value(pickle_.kind(id))) return add_value({SHALE_ROLE_RUN, "run", path}, id);
    add_tensor({SHALE_ROLE_RUN, "run", path}, tensor_of(pickle_, id, archive_), SHALE_ITEM_TENSOR);
  }

  // AdamW of PyTorch keeps the number of updates as a tensor of one float; shale as an integer.
  void add_moment(const Name& name, Id id) {
    if (is_value(pickle_.kind(id))) return add_value(name, id);
    const Tensor tensor = tensor_of(pickle_, id, archive_);
    if (name.key == "step" && tensor.dtype == SHALE_F32 && tensor.numel() == 1) {
      float steps = 0;
      archive_.source().read(tensor.offset, &steps, sizeof steps);
      if (steps >= 0 && steps < 1e9F && steps == std::floor(steps)) return add_integer(name, std::lround(steps));
    }
    add_tensor(name, tensor, SHALE_ITEM_TENSOR);
  }

  // ---- items
  static shale_item item_of(const Name& name, std::uint32_t kind) {
    SHALE_VAR(shale_item, item);
    item.kind = kind, item.role = name.role;
    item.name = str(name.name), item.key = str(name.key);
    return item;
  }

  void add_integer(const Name& name, std::int64_t number) {
    shale_value value{};
    value.type = SHALE_OPT_INT, value.is_set = 1, value.i = number;
    add_item(name, value);
  }

  void add_item(const Name& name, const shale_value& value) {
    shale_item item = item_of(name, SHALE_ITEM_VALUE);
    item.value = &value;
    std::uint32_t number = 0;
    plugin_.ok(index_.add_item(index_.ctx, &item, &number));
  }

  void add_value(const Name& name, Id id) {
    shale_value value{};
    value.is_set = 1;
    const Value& from = pickle_[id];
    if (from.kind == Kind::real) {
      value.type = SHALE_OPT_FLOAT, value.f = pickle_.real(id);
    } else if (from.kind == Kind::text) {
      value.type = SHALE_OPT_TEXT, value.s = str(from.text);
    } else {
      value.type = SHALE_OPT_INT, value.i = from.integer;
    }
    add_item(name, value);
  }

  void add_tensor(const Name& name, const Tensor& tensor, std::uint32_t kind) {
    shale_item item = item_of(name, kind);
    item.dtype = tensor.dtype;
    item.ndim = static_cast<std::uint32_t>(tensor.shape.size());
    std::ranges::copy(tensor.shape, item.shape);
    const std::string* owner =
        tensor.numel() > 0 && name.role == SHALE_ROLE_WEIGHT ? owner_of(name.name, tensor) : nullptr;
    if (owner) item.alias_of = str(*owner);
    std::uint32_t number = 0;
    plugin_.ok(index_.add_item(index_.ctx, &item, &number));
    if (owner || tensor.numel() == 0) return;
    SHALE_VAR(shale_box, box);
    box.ndim = item.ndim;
    std::ranges::copy(tensor.shape, box.extent);
    const std::string& file = archive_.source().name();
    if (tensor.row_major()) return plugin_.ok(index_.add_raw(index_.ctx, number, &box, str(file), tensor.offset));
    const std::string token = token_of(tensor, file);
    plugin_.ok(index_.add_coded(index_.ctx, number, &box, str(token), tensor.numel() * tensor.width()));
  }

  // The first name of the very same elements: tied weights.
  const std::string* owner_of(const std::string& name, const Tensor& tensor) {
    auto& here = owners_[tensor.offset];
    for (const auto& [owner, known] : here)
      if (known == tensor) return &owner;
    here.emplace_back(name, tensor);
    return nullptr;
  }

  const shale::sdk::Plugin& plugin_;
  Archive& archive_;
  const shale_index& index_;
  const std::vector<Global> globals_;
  const Pickle pickle_;
  std::uint64_t visited_ = 0;
  std::map<std::uint64_t, std::vector<std::pair<std::string, Tensor>>> owners_;
};

}  // namespace

void describe(const shale::sdk::Plugin& plugin, Archive& archive, const shale_index& index) {
  State(plugin, archive, index).describe();
}

}  // namespace torch_file

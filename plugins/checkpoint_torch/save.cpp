#include "save.h"

#include <map>
#include <vector>

#include "pickler.h"
#include "state.h"
#include "zip_writer.h"

using namespace shale::sdk;

namespace torch_file {
namespace {

std::span<const std::int64_t> shape_of(const shale_item& item) { return {item.shape, item.ndim}; }

std::string path_of(const shale_item& item) {
  return std::to_string(item.role) + "/" + std::string(view(item.name)) + "/" + std::string(view(item.key));
}

// The pickle of one write call. Dicts of the file: model, optimizer.state by parameter, run, plugins by plugin.
class Layout {
 public:
  explicit Layout(const shale_save& save) : save_(save) {
    for (std::uint32_t k = 0; k < save.n_entries; ++k) check(*save.entries[k]);
    for (std::uint32_t k = 0; k < save.n_entries; ++k)
      if (save.entries[k]->item->alias_of.len == 0) add(k);
    for (std::uint32_t k = 0; k < save.n_entries; ++k)
      if (save.entries[k]->item->alias_of.len != 0) add_alias(*save.entries[k]->item);
  }

  const std::vector<std::uint32_t>& order() const { return order_; }  // entry of each record data/0, data/1, ...

  std::string pickle() {
    Pickler out;
    out.op("\x80\x02}(").text("model").op("}(" + model_.take() + "u");
    if (!optimizer_.empty()) out.text("optimizer").op("}(").text("state").op(nested(optimizer_) + "u");
    if (!run_empty_) out.text("run").op("}(" + run_.take() + "u");
    if (!plugins_.empty()) out.text("plugins").op(nested(plugins_));
    out.text("shale").op("}(").text("version").integer(1);
    out.text("step").integer(static_cast<std::int64_t>(save_.step));
    out.text("buffers").op("](" + buffers_.take() + "e").text("bytes").op("](" + bytes_.take() + "eu");
    return out.op("u.").take();
  }

 private:
  using Groups = std::map<std::string, Pickler, std::less<>>;

  static void check(const shale_entry& entry) {
    const shale_item& item = *entry.item;
    const std::string_view key = view(item.key), name = view(item.name);
    const bool held = (item.role == SHALE_ROLE_WEIGHT && key == "weight") ||
                      (item.role == SHALE_ROLE_BUFFER && key == "buffer") || item.role == SHALE_ROLE_OPTIMIZER ||
                      (item.role == SHALE_ROLE_RUN && name == "run") || item.role == SHALE_ROLE_PLUGIN;
    if (!held) throw Error(SHALE_UNSUPPORTED, path_of(item), "this format has no place for it");
    if (item.kind != SHALE_ITEM_TENSOR || item.alias_of.len != 0) return;
    std::uint64_t bytes = SHALE_DTYPE_BITS(item.dtype) / 8;
    for (const std::int64_t size : shape_of(item)) bytes *= static_cast<std::uint64_t>(size);
    if (bytes != entry.bytes)
      throw Error(SHALE_UNSUPPORTED, path_of(item), "this format holds whole tensors and this is a part of one");
  }

  void add(std::uint32_t k) {
    const shale_item& item = *save_.entries[k]->item;
    const std::string name(view(item.name)), key(view(item.key));
    const bool in_model = item.role == SHALE_ROLE_WEIGHT || item.role == SHALE_ROLE_BUFFER;
    Pickler& to = in_model                            ? model_
                  : item.role == SHALE_ROLE_OPTIMIZER ? optimizer_[name]
                  : item.role == SHALE_ROLE_RUN       ? run_
                                                      : plugins_[name];
    if (item.role == SHALE_ROLE_RUN) run_empty_ = false;
    to.text(in_model ? name : key);
    if (item.role == SHALE_ROLE_BUFFER) buffers_.text(name);
    if (item.kind == SHALE_ITEM_VALUE) return (void)to.value(*item.value);
    if (item.kind == SHALE_ITEM_BYTES) bytes_.text(path_of(item));
    if (item.role == SHALE_ROLE_WEIGHT) storages_[name] = order_.size();
    to.tensor(item.kind == SHALE_ITEM_BYTES ? SHALE_U8 : item.dtype, shape_of(item), order_.size());
    order_.push_back(k);
  }

  void add_alias(const shale_item& item) {
    const auto owner = storages_.find(view(item.alias_of));
    if (item.role != SHALE_ROLE_WEIGHT || owner == storages_.end())
      throw Error(SHALE_UNSUPPORTED, path_of(item), "is tied to what is not saved with it");
    model_.text(view(item.name)).tensor(item.dtype, shape_of(item), owner->second);
  }

  static std::string nested(Groups& groups) {
    Pickler out;
    out.op("}(");
    for (auto& [name, inside] : groups) out.text(name).op("}(" + inside.take() + "u");
    return out.op("u").take();
  }

  const shale_save& save_;
  Pickler model_, run_, buffers_, bytes_;
  Groups optimizer_, plugins_;
  bool run_empty_ = true;
  std::map<std::string, std::uint64_t, std::less<>> storages_;
  std::vector<std::uint32_t> order_;
};

void add_records(ZipWriter& zip, const shale_save& save, const Layout& layout, const std::string& pickle,
                 const Plugin* plugin) {
  const auto text = [&](const char* name, const std::string& bytes) {
    zip.add(std::string("checkpoint/") + name, bytes.size(), [&] { return static_cast<const void*>(bytes.data()); });
  };
  const std::string little = "little", version = "3\n";
  text("data.pkl", pickle);
  text("byteorder", little);
  for (std::size_t k = 0; k < layout.order().size(); ++k) {
    const std::uint32_t entry = layout.order()[k];
    std::function<const void*()> data;
    if (plugin)
      data = [&save, entry, plugin] {
        const void* bytes = nullptr;
        plugin->ok(save.data(save.ctx, entry, &bytes));
        return bytes;
      };
    zip.add("checkpoint/data/" + std::to_string(k), save.entries[entry]->bytes, data);
  }
  text("version", version);
  zip.finish();
}

}  // namespace

void write(const Plugin& plugin, const shale_save& save) {
  if (save.n_writers != 1 || save.n_parts != 1)
    throw Error(SHALE_UNSUPPORTED, "checkpoint", "this format is one file, which one rank writes");
  Layout layout(save);
  const std::string pickle = layout.pickle();
  ZipWriter count([](const void*, std::uint64_t) {});
  add_records(count, save, layout, pickle, nullptr);
  const auto& files = plugin.service<shale_files>(SHALE_FILES_SERVICE);
  shale_file* file = nullptr;
  plugin.ok(files.create(files.ctx, save.folder, str(kFile), &file));
  if (SHALE_HAS(&files, reserve) && files.reserve != nullptr)
    plugin.ok(files.reserve(files.ctx, file, count.position()));
  ZipWriter zip([&](const void* bytes, std::uint64_t n) { plugin.ok(files.append(files.ctx, file, bytes, n)); });
  add_records(zip, save, layout, pickle, &plugin);
  plugin.ok(files.close(files.ctx, file));
}

}  // namespace torch_file

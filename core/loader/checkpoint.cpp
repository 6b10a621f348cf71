#include <optional>

#include "core/loader/adapters.h"
#include "core/loader/dtypes.h"
#include "core/loader/index_sink.h"
#include "core/loader/item_view.h"

namespace shale {
namespace {

constexpr std::size_t kMostDtypes = 256;

// The C view of one write call. Not movable: it points into itself.
class SaveView {
 public:
  SaveView(const WriteCall& call, shale_folder* folder) : call_(call) {
    const std::size_t n = call.entries.size();
    items_.reserve(n), boxes_.reserve(n), values_.reserve(n), entries_.reserve(n), pointers_.reserve(n);
    for (const WriteEntry& e : call.entries) add(e);
    save_ = {.struct_size = sizeof save_,
             .writer = static_cast<std::uint32_t>(call.writer),
             .n_writers = static_cast<std::uint32_t>(call.n_writers),
             .part = static_cast<std::uint32_t>(call.part),
             .n_parts = static_cast<std::uint32_t>(call.n_parts),
             .n_entries = static_cast<std::uint32_t>(n),
             .first_part = static_cast<std::uint32_t>(call.first_part),
             .all_parts = static_cast<std::uint32_t>(call.all_parts),
             .step = call.step,
             .folder = folder,
             .entries = pointers_.data(),
             .ctx = this,
             .data = &SaveView::data,
             .report = &SaveView::report};
  }
  SaveView(const SaveView&) = delete;
  SaveView& operator=(const SaveView&) = delete;
  const shale_save* c() const { return &save_; }

 private:
  void add(const WriteEntry& e) {
    check(e.item != nullptr, "a write entry without item");
    const bool is_value = e.item->kind == ItemKind::value;
    values_.push_back(is_value ? value_to_c(e.item->value) : shale_value{});
    items_.push_back(item_to_c(*e.item, is_value ? &values_.back() : nullptr));
    boxes_.push_back(e.box ? box_to_c(*e.box) : shale_box{});
    entries_.push_back({sizeof(shale_entry), 0, &items_.back(), e.box ? &boxes_.back() : nullptr, e.bytes});
    pointers_.push_back(&entries_.back());
  }
  static shale_status* data(void* ctx, std::uint32_t k, const void** bytes) {
    return guarded([&]() -> shale_status* {
      const auto& entries = static_cast<SaveView*>(ctx)->call_.entries;
      if (k >= entries.size() || bytes == nullptr)
        return make_status(SHALE_BAD_ARGUMENT, "k", str("is ", k, ", there are ", entries.size(), " entries"));
      if (!entries[k].data) return make_status(SHALE_BAD_ARGUMENT, "k", str(k, " is an entry without bytes"));
      *bytes = entries[k].data();
      return nullptr;
    });
  }
  static shale_status* report(void* ctx, const void* bytes, std::uint64_t n) {
    return guarded([&]() -> shale_status* {
      std::string* to = static_cast<SaveView*>(ctx)->call_.report;
      if (bytes == nullptr && n > 0) return make_status(SHALE_BAD_ARGUMENT, "bytes", "is NULL");
      if (to != nullptr) to->append(static_cast<const char*>(bytes), n);
      return nullptr;
    });
  }

  const WriteCall& call_;
  std::vector<shale_item> items_;
  std::vector<shale_box> boxes_;
  std::vector<shale_value> values_;
  std::vector<shale_entry> entries_;
  std::vector<const shale_entry*> pointers_;
  shale_save save_{};
};

class Format : public CheckpointFormat {
 public:
  explicit Format(OwnedInstance plugin)
      : plugin_(std::move(plugin)),
        table_(plugin_->table<shale_checkpoint>(SHALE_CHECKPOINT)),
        id_(plugin_->descriptor().id) {
    if (table_.format == nullptr || table_.write == nullptr || table_.describe == nullptr)
      plugin_->refuse(Code::config, "its table of shale.checkpoint/1 lacks format, write or describe: a bug of it");
  }

  const std::string& id() const override { return id_; }

  FormatTraits traits() override {
    shale_format f{};
    f.struct_size = sizeof f;
    plugin_->call("format", Code::config, [&] { return table_.format(plugin_->self(), &f); });
    FormatTraits t;
    t.boxes = f.flags & SHALE_FORMAT_BOXES, t.bytes = f.flags & SHALE_FORMAT_BYTES;
    t.values = f.flags & SHALE_FORMAT_VALUES, t.optimizer = f.flags & SHALE_FORMAT_OPTIMIZER;
    t.aliases = f.flags & SHALE_FORMAT_ALIASES, t.one_writer = f.flags & SHALE_FORMAT_ONE_WRITER;
    t.file_bytes = f.file_bytes;
    for (std::size_t k = 0; f.dtypes != nullptr && f.dtypes[k] != 0; ++k) {
      if (k == kMostDtypes) plugin_->refuse(Code::config, "its list of dtypes has no end: a bug of the plugin");
      if (const auto dtype = dtype_from_c(f.dtypes[k])) t.dtypes.push_back(*dtype);  // others never occur here
    }
    if (t.dtypes.empty()) plugin_->refuse(Code::config, "it can hold no dtype of this shale: a bug of the plugin");
    return t;
  }

  void write(const WriteCall& call) override {
    FilesService::Lent folder(plugin_->files(), *call.folder, FilesService::Use::write);
    const SaveView save(call, folder.handle());
    plugin_->call("write", Code::internal, [&] { return table_.write(plugin_->self(), save.c()); });
  }

  void finish(const FinishCall& call) override {
    if (table_.finish == nullptr) return;
    FilesService::Lent folder(plugin_->files(), *call.folder, FilesService::Use::finish);
    std::optional<FilesService::Lent> assets;
    if (call.assets != nullptr) assets.emplace(plugin_->files(), *call.assets, FilesService::Use::read);
    std::vector<shale_str> reports;
    for (const std::string& r : call.reports) reports.push_back(to_c(r));
    shale_finish c{};
    c.struct_size = sizeof c, c.n_reports = static_cast<std::uint32_t>(reports.size());
    c.step = call.step, c.total_bytes = call.total_bytes;
    c.folder = folder.handle(), c.reports = reports.data(), c.model_json = to_c(call.model_json);
    c.assets = assets ? assets->handle() : nullptr;
    plugin_->call("finish", Code::internal, [&] { return table_.finish(plugin_->self(), &c); });
  }

  int probe(Folder& where) override {
    if (table_.probe == nullptr) return 0;
    FilesService::Lent folder(plugin_->files(), where, FilesService::Use::read);
    std::uint32_t score = 0;
    plugin_->call("probe", Code::internal, [&]() -> shale_status* {
      score = table_.probe(plugin_->self(), folder.handle());
      return nullptr;
    });
    return static_cast<int>(std::min(score, 2u));
  }

  Index describe(Folder& where) override {
    FilesService::Lent folder(plugin_->files(), where, FilesService::Use::read);
    IndexSink sink;
    plugin_->call("describe", Code::internal,
                  [&] { return table_.describe(plugin_->self(), folder.handle(), sink.c()); });
    sink.finish(*plugin_, "describe");
    return sink.take();
  }

  void read(Folder& where, const std::string& token, std::span<std::byte> to) override {
    FilesService::Lent folder(plugin_->files(), where, FilesService::Use::read);
    if (table_.locate == nullptr && table_.read == nullptr)
      plugin_->refuse(Code::internal, "it described a coded box but has neither locate nor read: a bug of the plugin");
    if (table_.locate == nullptr) {
      plugin_->call("read", Code::internal,
                    [&] { return table_.read(plugin_->self(), folder.handle(), to_c(token), to.data(), to.size()); });
      return;
    }
    shale_str file{};
    std::uint64_t offset = 0;
    plugin_->call("locate", Code::internal,
                  [&] { return table_.locate(plugin_->self(), folder.handle(), to_c(token), &file, &offset); });
    if (file.ptr == nullptr || file.len == 0 || file.len > 255)
      plugin_->refuse(Code::internal, "locate named no file: a bug of the plugin");
    where.open(to_text(file))->read(offset, to);
  }

 private:
  OwnedInstance plugin_;
  shale_checkpoint table_;
  const std::string id_;
};

}  // namespace

std::unique_ptr<CheckpointFormat> make_checkpoint(OwnedInstance plugin) {
  return std::make_unique<Format>(std::move(plugin));
}

}  // namespace shale

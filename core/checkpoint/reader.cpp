#include <algorithm>
#include <cstring>
#include <map>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/copy.h"
#include "core/checkpoint/index_check.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/snapshot.h"

namespace shale {
namespace {

constexpr std::uint64_t kWindowBytes = 256 << 10;
constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr std::size_t kMostOpen = 64;  // files at a time

// Reads of one span of a file, ascending. Short ones are served from a window, long ones go straight to their place.
class SpanReader {
 public:
  SpanReader(File& file, std::uint64_t end, std::uint64_t& counter) : file_(file), end_(end), counter_(counter) {}

  void read(std::uint64_t offset, std::span<std::byte> to) {
    if (to.size() >= kWindowBytes / 4) return fetch(offset, to);
    if (offset < begin_ || offset + to.size() > begin_ + window_.size()) {
      begin_ = offset;
      window_.resize(std::max<std::uint64_t>(to.size(), std::min(kWindowBytes, end_ - offset)));
      fetch(offset, window_);
    }
    std::memcpy(to.data(), window_.data() + (offset - begin_), to.size());
  }

 private:
  void fetch(std::uint64_t offset, std::span<std::byte> to) {
    file_.read(offset, to);
    counter_ += to.size();
  }

  File& file_;
  std::uint64_t end_, begin_ = 0;
  std::uint64_t& counter_;
  std::vector<std::byte> window_;
};

// Where elements [begin, ...) of a tensor go.
struct Target {
  std::int64_t begin;
  std::span<std::byte> bytes;
  std::int64_t width;
  std::span<std::byte> at(std::int64_t element, std::int64_t n) const {
    return bytes.subspan(static_cast<std::size_t>((element - begin) * width), static_cast<std::size_t>(n * width));
  }
};

class Reader final : public SnapshotReader {
 public:
  Reader(const std::string& path, CheckpointFormat& format, bool foreign)
      : format_(format), folder_(Folder::for_reading(path)) {
    if (!foreign) read_manifest_of(path);
    index_ = format_.describe(*folder_);
    for (Item& item : index_.items)
      if (item.kind == ItemKind::bytes) item.value = std::int64_t{0};
    if (!foreign) add_run_items();
    boxes_ = checked_boxes(
        index_, [this](const std::string& name) { return size_of(name); }, path);
    for (Item& item : index_.items)
      if (const std::string* bytes = value_of(item)) item.shape = {static_cast<std::int64_t>(bytes->size())};
  }

  const std::vector<Item>& items() const override { return index_.items; }

  const Item* find(ItemRole role, const std::string& name, const std::string& key) const override {
    Item wanted;
    wanted.role = role;
    wanted.name = name;
    wanted.key = key;
    const auto at = std::ranges::lower_bound(index_.items, wanted, item_before);
    return at == index_.items.end() || item_before(wanted, *at) ? nullptr : &*at;
  }

  void read(const Item& item, std::int64_t begin, const at::Tensor& into) override {
    check(item.kind == ItemKind::tensor, item.id(), ": is no tensor");
    check(into.is_cpu() && into.is_contiguous() && into.scalar_type() == item.dtype, item.id(),
          ": must be read into a contiguous CPU tensor of its dtype");
    const std::int64_t total = whole(item.shape).numel(), n = into.numel();
    check(begin >= 0 && begin <= total && n <= total - begin, item.id(), ": elements ", begin, " + ", n, " of ", total);
    const std::int64_t width = into.element_size();
    fill(item, {begin, {static_cast<std::byte*>(into.mutable_data_ptr()), static_cast<std::size_t>(n * width)}, width},
         begin + n);
  }

  std::string read_bytes(const Item& item) override {
    check(item.kind == ItemKind::bytes, item.id(), ": is no byte string");
    if (const std::string* bytes = value_of(item)) return *bytes;
    std::string out(static_cast<std::size_t>(item.shape[0]), '\0');
    fill(item, {0, std::as_writable_bytes(std::span(out)), 1}, item.shape[0]);
    return out;
  }

  std::uint64_t bytes_read() const override { return bytes_read_; }
  std::uint64_t step() const override { return manifest_.step; }
  std::string model_json() override { return text_file(kModelFile); }
  std::string config_text() override { return text_file(kConfigFile); }

 private:
  void read_manifest_of(const std::string& path) {
    manifest_ = read_manifest(*folder_);
    if (manifest_.format != format_.id())
      fail(Code::checkpoint, path, ": was written by the checkpoint format '", manifest_.format, "', not '",
           format_.id(), "'");
    const std::string problem = missing_files(*folder_, manifest_);
    if (!problem.empty()) fail(Code::checkpoint, problem, "; the snapshot is damaged, use an older one");
    check_small_files();
    trusted_ = true;
  }

  // What says where everything is must be as it was written; data is checked by verify_snapshot, which reads it all.
  void check_small_files() {
    for (const FileEntry& entry : manifest_.files) {
      if (entry.bytes > kSmallBytes && !entry.name.ends_with(".json")) continue;
      const std::string path = folder_->path() + "/" + entry.name;
      if (hash_text(read_text(*folder_, entry.name, kLargestText)) != entry.hash)
        fail(Code::checkpoint, path, ": the bytes were changed after the snapshot was written; use an older one");
    }
  }

  // Byte strings of run.json carry their value and need no box: without a length while the boxes are checked.
  void add_run_items() {
    if (!manifest_.find(kRunFile)) return;
    const std::string where = folder_->path() + "/" + kRunFile;
    const Json json = parse_json(read_text(*folder_, kRunFile, kLargestText), where);
    for (const Json& entry : array_of(json, "items", where)) {
      Item item = item_from_json(entry, where);
      if (item.kind == ItemKind::bytes) item.shape = {0};
      index_.items.push_back(std::move(item));
    }
  }

  static const std::string* value_of(const Item& item) {
    return item.kind == ItemKind::bytes ? std::get_if<std::string>(&item.value) : nullptr;
  }

  std::string text_file(const char* name) {
    return manifest_.find(name) ? read_text(*folder_, name, kLargestText) : "";
  }

  // Not by opening it: a snapshot may have more files than a process may open. missing_files compared the sizes.
  std::uint64_t size_of(const std::string& name) {
    if (!trusted_) return open_file(name).size();
    const FileEntry* entry = manifest_.find(name);
    if (!entry) fail(Code::checkpoint, folder_->path(), "/", name, ": is named in the index, but not in the manifest");
    return entry->bytes;
  }

  // Until the next call.
  File& open_file(const std::string& name) {
    if (const auto known = files_.find(name); known != files_.end()) return *known->second;
    if (files_.size() >= kMostOpen) files_.clear();
    return *files_.emplace(name, folder_->open(name)).first->second;
  }

  void fill(const Item& item, const Target& target, std::int64_t end) {
    const Item* known = find(item.role, item.alias_of.empty() ? item.name : item.alias_of, item.key);
    check(known != nullptr, item.id(), ": is no item of this snapshot");
    const std::vector<Box> wanted = boxes_of_range(known->shape, target.begin, end);
    for (const StoredBox& stored : boxes_[static_cast<std::size_t>(known - index_.items.data())])
      for (const Box& box : wanted) {
        const Box part = intersect(box, stored.box);
        if (!part.empty()) copy(known->shape, stored, part, target);
      }
  }

  void copy(const std::vector<std::int64_t>& shape, const StoredBox& stored, const Box& part, const Target& target) {
    if (!stored.token.empty()) return copy_coded(shape, stored, part, target);
    std::int64_t last = 0;  // element of the stored box that is read last
    for (std::size_t d = 0; d < shape.size(); ++d)
      last = last * stored.box.extent[d] + part.begin[d] + part.extent[d] - 1 - stored.box.begin[d];
    const std::uint64_t end = stored.offset + static_cast<std::uint64_t>((last + 1) * target.width);
    SpanReader reader(open_file(stored.file), end, bytes_read_);
    for_each_run(shape, stored.box, part, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      reader.read(stored.offset + static_cast<std::uint64_t>(from * target.width), target.at(to, n));
    });
  }

  void copy_coded(const std::vector<std::int64_t>& shape, const StoredBox& stored, const Box& part,
                  const Target& target) {
    std::vector<std::byte> bytes(stored.bytes);
    format_.read(*folder_, stored.token, bytes);
    bytes_read_ += stored.bytes;
    for_each_run(shape, stored.box, part, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      std::memcpy(target.at(to, n).data(), bytes.data() + from * target.width,
                  static_cast<std::size_t>(n * target.width));
    });
  }

  CheckpointFormat& format_;
  std::unique_ptr<Folder> folder_;
  bool trusted_ = false;  // there is a manifest: only its files are opened
  Manifest manifest_;
  Index index_;
  std::vector<std::vector<StoredBox>> boxes_;  // of each item
  std::map<std::string, std::unique_ptr<File>> files_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace

std::unique_ptr<SnapshotReader> SnapshotReader::open(const std::string& path, CheckpointFormat& format) {
  return std::make_unique<Reader>(path, format, false);
}

std::unique_ptr<SnapshotReader> SnapshotReader::open_foreign(const std::string& path, CheckpointFormat& format) {
  return std::make_unique<Reader>(path, format, true);
}

}  // namespace shale

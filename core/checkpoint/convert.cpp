#include "core/checkpoint/convert.h"

#include <filesystem>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/posix.h"
#include "core/comm/local_group.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

// A folder beside the target that is gone at the end, however it ends.
class Workshop {
 public:
  explicit Workshop(const std::string& to) : path_(to + ".converting") {
    if (fs::exists(fs::symlink_status(to))) fail(Code::io, to, ": is there already; choose a new folder");
    std::error_code bad;
    fs::remove_all(path_, bad);  // of a conversion that was killed
    fs::create_directories(path_, bad);
    if (bad) fail(Code::io, path_, ": cannot be made: ", bad.message());
  }
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Conversion {
 public:
  Conversion(SnapshotReader& from, const FormatTraits& traits, const ConvertOptions& options)
      : from_(from), options_(options), weights_only_(options.weights_only || !traits.optimizer) {
    for (const Item& item : from.items()) add(item);
  }

  SnapshotSpec spec;
  std::vector<std::string> left_out;

 private:
  void add(const Item& item) {
    const bool weight = item.role == ItemRole::weight || item.role == ItemRole::buffer;
    if (weights_only_ && !weight) return left_out.push_back(item.id());
    if (item.kind == ItemKind::tensor && item.alias_of.empty()) return add_tensor(item);
    Item copy = item;
    if (item.kind == ItemKind::bytes) copy.value = from_.read_bytes(item), copy.shape.clear();
    if (item.kind == ItemKind::tensor && options_.dtype) copy.dtype = *options_.dtype;
    spec.items.push_back(std::move(copy));
  }

  void add_tensor(const Item& item) {
    Piece piece;
    piece.item = item;
    const auto bytes = static_cast<std::uint64_t>(whole(item.shape).numel()) * c10::elementSize(item.dtype);
    if (options_.dtype && item.role == ItemRole::weight && c10::isFloatingType(item.dtype))
      piece.item.dtype = *options_.dtype;
    all_ += bytes;
    piece.load = [this, source = &item, to = piece.item.dtype, bytes] {
      auto data = at::empty({whole(source->shape).numel()}, at::TensorOptions(source->dtype));
      from_.read(*source, 0, data);
      done_ += bytes;
      if (options_.progress) options_.progress(done_, all_);
      return data.to(to);
    };
    spec.pieces.push_back(std::move(piece));
  }

  SnapshotReader& from_;
  const ConvertOptions& options_;
  const bool weights_only_;
  std::uint64_t done_ = 0, all_ = 0;
};

}  // namespace

std::vector<std::string> convert(SnapshotReader& from, CheckpointFormat& format, const std::string& to,
                                 const ConvertOptions& options) {
  const Workshop workshop(to);
  Conversion conversion(from, format.traits(), options);
  auto& spec = conversion.spec;
  spec.root = workshop.path(), spec.step = from.step();
  spec.assets = options.assets, spec.model_json = options.model_json, spec.config_text = from.config_text();
  const auto alone = make_local_group("convert");
  save_snapshot(*alone, format, spec);
  rename_new(workshop.path() + "/" + step_name(spec.step), to);
  return conversion.left_out;
}

}  // namespace shale

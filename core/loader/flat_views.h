// The flats of a model as the C structs plugins see: each has one address until the plugin is destroyed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/loader/model_view.h"
#include "core/sharding/layout.h"

namespace shale {

// Any thread.
class FlatViews {
 public:
  // The model of the latest plan, which lives until the next call; null = none. Not while a hook runs.
  void use(const ModelView*);
  const shale_flat* view(const FlatLayout&, const ShardRange&);
  const FlatLayout* layout(const shale_flat*);  // null: not one that a hook of this model has seen
  std::string name(const FlatLayout&) const;    // "layers.0", "layers.0 (flat 1)"

 private:
  struct Entry {
    shale_flat c{};
    const FlatLayout* layout = nullptr;
    ShardRange range;
    std::vector<const shale_param*> params;
    std::vector<std::uint64_t> offsets;
  };
  void fill(Entry&, const FlatLayout&, const ShardRange&) const;

  mutable std::mutex mutex_;
  const ModelView* model_ = nullptr;
  std::map<std::pair<int, int>, std::unique_ptr<Entry>> entries_;  // by unit and index
  std::map<const shale_flat*, const Entry*> known_;
};

}  // namespace shale

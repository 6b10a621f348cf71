#include "weight_map.h"

namespace hf {
namespace {

constexpr std::uint64_t kLargest = 100'000'000;

// {"metadata": anything, "weight_map": {tensor: file}}
class Reader final : public Events {
 public:
  Reader() : Events(kIndex) {}
  WeightMap map;
  bool found = false;

 private:
  bool in_map() const { return depth() == 2 && at_map_; }
  void on_key(std::string& key) override {
    if (depth() == 1) {
      at_map_ = key == "weight_map";
      if (at_map_ && found) bad("has 'weight_map' twice");
      found |= at_map_;
    } else if (in_map()) {
      const auto [entry, added] = map.emplace(std::move(key), "");
      if (!added) bad("has the tensor " + in_quotes(entry->first) + " twice");
      entry_ = entry;
    }
  }
  void on_text(std::string& text) override {
    if (!in_map()) return expect_other();
    if (text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos || !text.ends_with(".safetensors"))
      bad("names the file " + in_quotes(text) + ", which is no plain name of a safetensors file");
    entry_->second = std::move(text);
  }
  void on_count(std::uint64_t) override { expect_other(); }
  void on_value(What what) override {
    if (what == What::object && (depth() == 0 || (depth() == 1 && at_map_))) return;
    expect_other();
  }
  void expect_other() const {
    if (depth() == 0) bad("is no JSON object");
    if (at_map_) bad("its 'weight_map' is no object of names of files");
  }

  WeightMap::iterator entry_;
  bool at_map_ = false;
};

}  // namespace

WeightMap read_weight_map(const Folder& folder) {
  const std::uint64_t size = folder.size(kIndex);
  if (size > kLargest) corrupt(kIndex, std::to_string(size) + " bytes are too many for an index");
  Reader reader;
  reader.read(folder.read(kIndex, 0, size));
  if (!reader.found) corrupt(kIndex, "has no 'weight_map'");
  return std::move(reader.map);
}

std::string weight_map_text(const WeightMap& map, std::uint64_t total_size) {
  return Json{{"metadata", {{"total_size", total_size}}}, {"weight_map", map}}.dump(2) + "\n";
}

}  // namespace hf

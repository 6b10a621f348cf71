#include "core/model/weights_file.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/input_file.h"
#include "core/model/safetensors.h"
#include "core/model/strict_json.h"

namespace shale {
namespace {

using nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::int64_t kCompared = 1 << 20;  // elements of two tensors in memory at a time when they are compared
constexpr std::size_t kListed = 8;           // faults named in one message

struct Located {
  const InputFile* file;
  StoredTensor tensor;
};

// Files of a folder by name, and where each tensor lies.
struct Contents {
  std::map<std::string, InputFile> files;
  std::map<std::string, Located> tensors;
};

std::string show(const Shape& shape) { return shown(json(shape)); }

// Buffers that old files carry though they follow from config.json.
bool is_rotary_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_emb.cos_cached") ||
         name.ends_with("rotary_emb.sin_cached");
}

void add_file(Contents& contents, const std::string& folder, const std::string& name) {
  const auto [file, fresh] = contents.files.try_emplace(name, folder + "/" + name);
  if (!fresh) return;
  for (auto& [tensor_name, tensor] : read_safetensors_header(file->second)) {
    const auto [it, added] = contents.tensors.try_emplace(tensor_name, Located{&file->second, tensor});
    if (!added) {
      fail(Code::input, "tensor ", shown(json(tensor_name)), " is in two files, ", it->second.file->path(), " and ",
           file->second.path());
    }
  }
}

// weight_map of an index, tensor name -> file name in the same folder.
std::map<std::string, std::string> read_index(const std::string& path) {
  const json index = parse_strict(InputFile(path).text(kMaxIndexBytes), path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail(Code::input, path, ": has no object \"weight_map\"");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    // A name, never a path: an index must not lead out of its folder.
    const bool plain = name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain || !name.ends_with(".safetensors") || name.starts_with('.')) {
      fail(Code::input, path, ": tensor ", shown(json(tensor)), " is said to be in ", shown(value),
           "; expected the name of a .safetensors file in the same folder");
    }
    files[tensor] = name;
  }
  return files;
}

Contents read_sharded(const std::string& folder) {
  const std::string path = folder + "/" + kIndex;
  Contents contents;
  const auto index = read_index(path);
  for (const auto& [tensor, name] : index) {
    if (!contents.files.contains(name) && !file_exists(folder + "/" + name)) {
      fail(Code::input, folder, "/", name, ": is not there, but ", kIndex, " says it holds tensor ",
           shown(json(tensor)), "; fetch the missing file");
    }
    add_file(contents, folder, name);
  }
  for (const auto& [tensor, name] : index) {
    const auto it = contents.tensors.find(tensor);
    if (it == contents.tensors.end() || it->second.file != &contents.files.at(name)) {
      fail(Code::input, folder, "/", name, ": has no tensor ", shown(json(tensor)), ", but ", kIndex, " says so");
    }
  }
  for (const auto& [tensor, located] : contents.tensors) {
    if (!index.contains(tensor)) {
      fail(Code::input, located.file->path(), ": tensor ", shown(json(tensor)), " is not in ", kIndex);
    }
  }
  return contents;
}

Contents read_folder(const std::string& folder) {
  const bool single = file_exists(folder + "/" + kSingle), index = file_exists(folder + "/" + kIndex);
  if (single && index) {
    fail(Code::input, folder, ": has both ", kSingle, " and ", kIndex, "; remove the one that is not the model");
  }
  if (index) return read_sharded(folder);
  if (!single) {
    const bool pickle =
        file_exists(folder + "/pytorch_model.bin") || file_exists(folder + "/pytorch_model.bin.index.json");
    fail(Code::input, folder, ": has neither ", kSingle, " nor ", kIndex,
         pickle ? "; its pytorch_model.bin is a pickle, which shale never reads: convert it to safetensors" : "");
  }
  Contents contents;
  add_file(contents, folder, kSingle);
  return contents;
}

// What does not fit between a model and a folder.
class Faults {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (all_.size() < kListed) all_.push_back(str(parts...));
    ++count_;
  }

  void fail_if_any(const std::string& folder) const {
    if (count_ == 0) return;
    std::string text = join(all_, "; ");
    if (count_ > all_.size()) text += str("; and ", count_ - all_.size(), " more");
    fail(Code::input, folder, ": weights do not fit config.json: ", text);
  }

 private:
  std::vector<std::string> all_;
  std::size_t count_ = 0;
};

class Folder : public WeightsFolder {
 public:
  explicit Folder(const std::string& path) : path_(path), contents_(read_folder(path)) {}

  void match(const ModelInfo& info, const Architecture& architecture) const override {
    Faults faults;
    std::set<std::string> known;
    for (const auto& unit : info.units) {
      for (const auto& parameter : unit.parameters) {
        known.insert(parameter.name);
        match_parameter(parameter, architecture, faults);
      }
    }
    for (const auto& [name, located] : contents_.tensors) {
      const bool tied_head = architecture.tied && name == "lm_head.weight";
      if (!known.contains(name) && !is_rotary_buffer(name) && !tied_head) {
        faults.add("tensor ", shown(json(name)), ' ', show(located.tensor.shape), " is unexpected",
                   name.ends_with(".bias") ? " (is attention_bias or mlp_bias missing in config.json?)" : "");
      }
    }
    faults.fail_if_any(path_);
    if (architecture.tied && contents_.tensors.contains("lm_head.weight")) {
      check_equal("lm_head.weight", "model.embed_tokens.weight");
    }
  }

  at::Tensor read(const std::string& name, std::int64_t begin, std::int64_t end) const override {
    const auto it = contents_.tensors.find(name);
    check(it != contents_.tensors.end(), path_, ": read of unknown tensor ", name);
    const auto& [file, tensor] = it->second;
    const auto dtype = parameter_dtype(tensor.dtype);
    check(dtype && 0 <= begin && begin <= end && end <= numel(tensor.shape), path_, ": read of ", name, " elements ",
          begin, " to ", end);
    at::Tensor out = at::empty({end - begin}, at::TensorOptions(*dtype));
    const auto item = static_cast<std::uint64_t>(out.element_size());
    file->read(tensor.begin + static_cast<std::uint64_t>(begin) * item, out.data_ptr(), out.nbytes());
    return out;
  }

 private:
  void match_parameter(const ParameterInfo& parameter, const Architecture& a, Faults& faults) const {
    const auto it = contents_.tensors.find(parameter.name);
    if (it == contents_.tensors.end()) {
      const bool head = parameter.name == "lm_head.weight" && !a.tied;
      faults.add("tensor ", parameter.name, ' ', show(parameter.shape), " is missing",
                 head ? " (tie_word_embeddings is false or absent in config.json)" : "");
      return;
    }
    const StoredTensor& stored = it->second.tensor;
    if (stored.shape != parameter.shape) {
      faults.add("tensor ", parameter.name, " has shape ", show(stored.shape), ", expected ", show(parameter.shape));
    } else if (!parameter_dtype(stored.dtype)) {
      faults.add("tensor ", parameter.name, " has dtype ", stored.dtype, ", expected F32, BF16, F16 or F64");
    }
  }

  void check_equal(const std::string& stored, const std::string& owner) const {
    const StoredTensor &a = contents_.tensors.at(stored).tensor, &b = contents_.tensors.at(owner).tensor;
    bool equal = a.shape == b.shape && parameter_dtype(a.dtype).has_value();
    const std::int64_t n = numel(b.shape);
    for (std::int64_t at = 0; equal && at < n; at += kCompared) {
      const std::int64_t end = std::min(at + kCompared, n);
      equal = read(stored, at, end).to(at::kDouble).equal(read(owner, at, end).to(at::kDouble));
    }
    if (!equal) {
      fail(Code::input, path_, ": tensor ", stored, " ", show(a.shape), " differs from ", owner, " ", show(b.shape),
           " although tie_word_embeddings is true in config.json: set it to false, or remove the tensor");
    }
  }

  std::string path_;
  Contents contents_;
};

}  // namespace

std::unique_ptr<WeightsFolder> WeightsFolder::open(const std::string& folder) {
  return std::make_unique<Folder>(folder);
}

}  // namespace shale

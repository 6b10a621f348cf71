#include "tests/core/model/folders.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/model/model.h"

namespace shale::test {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "shale-model-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "no temporary folder");
  path_ = name;
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

std::string TempFolder::write(const std::string& name, const std::string& bytes) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

std::string TempFolder::read(const std::string& name) const {
  std::ostringstream all;
  all << std::ifstream(path_ + "/" + name, std::ios::binary).rdbuf();
  return all.str();
}

std::string safetensors(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + header + data;
}

std::string safetensors(const std::string& header, const std::string& data) {
  return safetensors(header, data, header.size());
}

std::string safetensors(const Tensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t bytes = tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {data.size(), data.size() + bytes}}};
    data.append(reinterpret_cast<const char*>(tensor.values.data()), bytes);
  }
  header["__metadata__"] = {{"format", "pt"}};
  return safetensors(header.dump(), data);
}

Architecture small_llama() {
  Architecture a;
  a.name = "LL";
  a.vocab_size = 97, a.dim = 24, a.ffn_dim = 56, a.n_layers = 2, a.n_heads = 4, a.n_kv_heads = 2, a.head_dim = 6;
  a.max_positions = 64;
  return a;
}

std::string config_with(const std::string& key, const std::string& json_value) {
  auto config = nlohmann::json::parse(config_json(small_llama()));
  if (json_value.empty()) {
    config.erase(key);
  } else {
    config[key] = nlohmann::json::parse(json_value);
  }
  return config.dump();
}

Tensors tensors_of(const Architecture& a) {
  Tensors tensors;
  for (const auto& unit : describe(a).units) {
    for (const auto& parameter : unit.parameters) {
      const at::Tensor values = initial_values(a, parameter, 1, 0, numel(parameter.shape)).to(at::kFloat);
      const auto* first = values.data_ptr<float>();
      tensors[parameter.name] = {parameter.shape, std::vector<float>(first, first + values.numel())};
    }
  }
  return tensors;
}

void report_missing_error(const std::string& found) { ADD_FAILURE() << "expected an Error, found " << found; }

}  // namespace shale::test

// Model folders for tests: small, made in a temporary place, with every byte under the test's control.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/architecture.h"
#include "core/model/description.h"

namespace shale::test {

// A folder that is gone with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const;  // returns the path
  std::string read(const std::string& name) const;

 private:
  std::string path_;
};

// float32 tensors of a safetensors file by name.
struct Tensor {
  Shape shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

// A safetensors file of a JSON header and data, with the right length or with `length`.
std::string safetensors(const std::string& header, const std::string& data);
std::string safetensors(const std::string& header, const std::string& data, std::uint64_t length);
std::string safetensors(const Tensors&);

// The fixture LL of the case list: vocabulary 97, dim 24, 2 layers, 4 heads, 2 key-value heads; 16,296 parameters.
Architecture small_llama();
// Its config.json with one key replaced or added; "" as value removes the key.
std::string config_with(const std::string& key, const std::string& json_value);
// Values of every parameter of the architecture, from the initial values of seed 1.
Tensors tensors_of(const Architecture&);

// The message of the Error that `act` throws; fails the test when it throws none or one of another class.
template <class Act>
std::string error_of(Code code, Act&& act);
void report_missing_error(const std::string& found);

template <class Act>
std::string error_of(Code code, Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    if (error.code() != code) report_missing_error(str("another class: ", error.what()));
    return error.what();
  }
  report_missing_error("none");
  return "";
}

}  // namespace shale::test

// Runs a Hugging Face folder on given tokens, for the comparison with transformers.
//   model_logits FOLDER TOKENS OUT [float32|float64|bfloat16]
// TOKENS: text "B T" and B x T ids. OUT: logits [B, T, vocabulary] as float64. Standard output: the config.json that
// shale would write, then the rotary frequencies as hexadecimal floats.
#include <cstdio>
#include <fstream>
#include <iostream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/model/rope.h"
#include "core/model/weights_file.h"
#include "tests/core/model/whole_model.h"

namespace shale {
namespace {

at::Tensor read_tokens(const std::string& path) {
  std::ifstream file(path);
  std::int64_t batch = 0, length = 0;
  file >> batch >> length;
  at::Tensor ids = at::empty({batch, length}, at::kLong);
  for (std::int64_t i = 0; i < ids.numel(); ++i) file >> ids.data_ptr<std::int64_t>()[i];
  check(static_cast<bool>(file), path, ": expected \"B T\" and B x T ids");
  return ids;
}

at::ScalarType read_dtype(const std::string& name) {
  return name == "float64" ? at::kDouble : name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

void run(const std::vector<std::string>& args) {
  const Architecture a = read_architecture(args[0]);
  const auto folder = WeightsFolder::open(args[0]);
  folder->match(describe(a), a);
  const at::Tensor ids = read_tokens(args[1]);
  test::WholeModel whole(a, ids.size(1), read_dtype(args.size() > 3 ? args[3] : ""),
                         [&](const ParameterInfo& p) { return folder->read(p.name, 0, numel(p.shape)); });
  const at::Tensor logits = whole.forward(ids).to(at::kDouble).contiguous();
  std::ofstream(args[2], std::ios::binary)
      .write(static_cast<const char*>(logits.data_ptr()), static_cast<std::streamsize>(logits.nbytes()));
  std::cout << config_json(a);
  const at::Tensor frequencies = rope_frequencies(a, at::kFloat);
  for (std::int64_t i = 0; i < frequencies.numel(); ++i) std::printf("%a ", frequencies.data_ptr<float>()[i]);
}

}  // namespace
}  // namespace shale

int main(int argc, char** argv) {
  c10::NoGradGuard no_graph;
  try {
    shale::check(argc >= 4, "usage: model_logits FOLDER TOKENS OUT [DTYPE]");
    shale::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

#include "core/model/model.h"

#include "core/base/error.h"
#include "core/model/llama.h"
#include "core/model/rope.h"

namespace shale {

Model make_model(const Architecture& architecture, std::span<const std::string> frozen, std::int64_t max_seq_len) {
  if (max_seq_len < 1) fail(Code::config, "sequence length is ", max_seq_len, "; it must be at least 1");
  Model model{architecture, describe(architecture, frozen), {}};
  auto tables = std::make_shared<RopeTables>(architecture, max_seq_len);
  for (const auto& unit : model.info.units) model.forward.push_back(llama_forward(architecture, unit, tables));
  return model;
}

}  // namespace shale

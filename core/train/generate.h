// Text from a snapshot, token by token, in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/format.h"

namespace shale {

struct GenerateOptions {
  std::string snapshot;              // a step-... folder, or a Hugging Face folder
  std::vector<std::int64_t> prompt;  // at least one token
  std::int64_t max_new_tokens = 200;
  double temperature = 0.8;  // 0 = always the likeliest token
  std::int64_t top_k = 40;   // only the k likeliest are drawn from; 0 = all
  std::uint64_t seed = 0;    // the same seed gives the same text
};

// Calls emit with each new token. format: null for a Hugging Face folder. Error{checkpoint} or Error{input} naming what
// is wrong with the folder; Error{config} when the prompt does not fit the vocabulary.
void generate(const GenerateOptions&, CheckpointFormat* format, const std::function<void(std::int64_t)>& emit);

}  // namespace shale

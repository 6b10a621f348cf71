// Damages valid files at random and reads them: every outcome but an answer or an Error is a failure. Deterministic.
#include <random>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/model/weights_file.h"
#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

constexpr int kRounds = 3000;

constexpr std::string_view kPieces[] = {"null",
                                        "true",
                                        "[]",
                                        "{}",
                                        "-1",
                                        "0",
                                        "1e999",
                                        "18446744073709551615",
                                        "9223372036854775808",
                                        "0.5",
                                        "\"\"",
                                        "[[[[",
                                        "}}}",
                                        "\"a",
                                        "\\u0000",
                                        "NaN",
                                        "\xff\xfe",
                                        "\"F32\"",
                                        "\"..\"",
                                        ",",
                                        ":",
                                        "4294967296",
                                        "\"__metadata__\":{},",
                                        "[0,0]"};

class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  // One to four edits; half of them put JSON that is unlikely but well formed in place of a run of bytes.
  std::string operator()(std::string text, std::size_t within) {
    for (std::size_t edits = 1 + below(4); edits-- > 0 && !text.empty();) edit(text, std::min(within, text.size()));
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void edit(std::string& text, std::size_t within) {
    const std::size_t at = below(within);
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(random_());
        break;
      case 1:
        text.erase(at, 1 + below(40));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), 1 + below(60)));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      default:
        replace_value(text, at, kPieces[below(std::size(kPieces))]);
        break;
    }
  }

  // From the next colon to the next comma or brace: a JSON value, most likely.
  void replace_value(std::string& text, std::size_t at, std::string_view piece) {
    const std::size_t begin = text.find(':', at);
    const std::size_t end = text.find_first_of(",}]", begin);
    if (begin != std::string::npos && end != std::string::npos) text.replace(begin + 1, end - begin - 1, piece);
  }

  std::mt19937 random_;
};

struct Count {
  int good = 0, refused = 0;
};

template <class Read>
void count(Count& counts, Read&& read) {
  try {
    read();
    ++counts.good;
  } catch (const Error& error) {
    ++counts.refused;
    EXPECT_EQ(error.code(), Code::input) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

TEST(Fuzz, Config) {
  TempFolder folder;
  Architecture a = small_llama();
  a.rope_scaling = RopeScaling{};
  const std::string good = config_json(a);
  Damage damage(1);
  Count counts;
  for (int i = 0; i < kRounds; ++i) {
    folder.write("config.json", damage(good, good.size()));
    count(counts, [&] { describe(read_architecture(folder.path())); });
  }
  EXPECT_GT(counts.good, 25);
  EXPECT_GT(counts.refused, kRounds / 2);
}

TEST(Fuzz, Safetensors) {
  Architecture a = small_llama();
  a.n_layers = 1, a.dim = 4, a.ffn_dim = 4, a.vocab_size = 5, a.n_heads = 2, a.n_kv_heads = 1, a.head_dim = 2;
  const ModelInfo info = describe(a);
  const std::string good = safetensors(tensors_of(a));
  Damage damage(2);
  Count counts;
  TempFolder folder;
  for (int i = 0; i < kRounds; ++i) {
    std::string bytes = damage(good, i % 8 == 0 ? 16 : good.size());
    if (i % 2 == 0 && bytes.size() > 8) {  // let the length fit the header again, so that more lies behind it
      const std::size_t end = bytes.rfind('}', std::min(bytes.size(), good.size() * 3 / 4));
      const std::size_t length = end == std::string::npos || end < 8 ? 2 : end - 7;
      for (std::size_t k = 0; k < 8; ++k) bytes[k] = static_cast<char>(length >> (8 * k) & 0xff);
    }
    folder.write("model.safetensors", bytes);
    count(counts, [&] {
      const auto weights = WeightsFolder::open(folder.path());
      weights->match(info, a);
      for (const auto& parameter : info.units[1].parameters) weights->read(parameter.name, 0, numel(parameter.shape));
    });
  }
  EXPECT_GT(counts.good, 25);
  EXPECT_GT(counts.refused, kRounds / 2);
}

TEST(Fuzz, Index) {
  TempFolder folder;
  nlohmann::json index;
  Tensors parts[2];
  for (const auto& [name, tensor] : tensors_of(small_llama())) {
    const int part = name.size() % 2;
    parts[part][name] = tensor;
    index["weight_map"][name] = str("part-", part, ".safetensors");
  }
  for (int part : {0, 1}) folder.write(str("part-", part, ".safetensors"), safetensors(parts[part]));
  const std::string good = index.dump();
  Damage damage(3);
  Count counts;
  for (int i = 0; i < kRounds / 3; ++i) {
    folder.write("model.safetensors.index.json", damage(good, good.size()));
    count(counts, [&] { WeightsFolder::open(folder.path())->match(describe(small_llama()), small_llama()); });
  }
  EXPECT_GT(counts.refused, kRounds / 6);
}

}  // namespace
}  // namespace shale::test

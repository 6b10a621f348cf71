// driver PLUGIN describe FOLDER: one line per item. driver PLUGIN save FOLDER: a few items of every kind, and the same
// lines. Errors end on stderr with exit code 1.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "items.h"

namespace {

namespace fs = std::filesystem;
using shale::test::Stored;

std::vector<Stored> material() {
  std::vector<Stored> out;
  const std::vector<std::pair<std::uint32_t, std::vector<std::int64_t>>> tensors = {
      {SHALE_F64, {3}}, {SHALE_F32, {5, 7}}, {SHALE_BF16, {2, 3, 4}},   {SHALE_F16, {1}},
      {SHALE_I64, {}},  {SHALE_I32, {2}},    {SHALE_I16, {2}},          {SHALE_I8, {300}},
      {SHALE_U8, {4}},  {SHALE_BOOL, {3}},   {SHALE_F8_E4M3FN, {4, 2}}, {SHALE_F8_E5M2, {6}}};
  out.push_back(
      {SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, SHALE_F32, "head.weight", "weight", "layer.1.weight", "", {5, 7}, ""});
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const auto& [dtype, shape] = tensors[k];
    const std::string name = "layer." + std::to_string(k) + ".weight";
    Stored item{SHALE_ITEM_TENSOR, SHALE_ROLE_WEIGHT, dtype, name, "weight", "", "", shape, ""};
    for (std::uint64_t i = 0; i < shale::test::bytes_of(dtype, shape); ++i)
      item.bytes += static_cast<char>(dtype == SHALE_BOOL ? i % 2 : i * 11 + k);
    out.push_back(item);
  }
  const std::string moments(5 * 7 * 4, '\x3c');
  for (const char* key : {"exp_avg", "exp_avg_sq"})
    out.push_back({SHALE_ITEM_TENSOR, SHALE_ROLE_OPTIMIZER, SHALE_F32, "layer.1.weight", key, "", "", {5, 7}, moments});
  const auto value = [&](std::uint32_t role, const char* name, const char* key, const char* text) {
    out.push_back({SHALE_ITEM_VALUE, role, 0, name, key, "", text, {}, ""});
  };
  value(SHALE_ROLE_OPTIMIZER, "layer.1.weight", "step", "int 12");
  value(SHALE_ROLE_RUN, "run", "large", "int -9007199254740993");
  value(SHALE_ROLE_RUN, "run", "lr", "float 0x1.999999999999ap-4");
  out.push_back(
      {SHALE_ITEM_BYTES, SHALE_ROLE_RUN, SHALE_U8, "run", "rng.rank_0", "", "", {5}, std::string("\0\xffxyz", 5)});
  value(SHALE_ROLE_RUN, "run", "words", "text a\n\xc3\xa9");
  out.push_back({SHALE_ITEM_TENSOR, SHALE_ROLE_PLUGIN, SHALE_F32, "diloco", "momentum", "", "", {2}, "01234567"});
  value(SHALE_ROLE_PLUGIN, "diloco", "round", "int 70000");
  out.push_back({SHALE_ITEM_TENSOR, SHALE_ROLE_BUFFER, SHALE_I64, "layer.count", "buffer", "", "", {1}, "12345678"});
  return out;
}

std::string escaped(std::string line) {
  for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, "\\n");
  return line;
}

void run(const std::string& plugin, const std::string& what, const fs::path& path) {
  shale::test::FormatOnFolder folder(plugin);
  std::vector<Stored> items;
  if (what == "save") {
    items = material();
    if (!folder.aliases()) std::erase_if(items, [](const Stored& item) { return !item.alias_of.empty(); });
    folder.save(items);
    for (const auto& [name, bytes] : folder.files()) std::ofstream(path / name, std::ios::binary) << bytes;
  } else {
    for (const auto& file : fs::directory_iterator(path)) {
      std::ifstream in(file.path(), std::ios::binary);
      folder.files()[file.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
    }
    items = folder.describe();
  }
  for (const Stored& item : items) std::cout << escaped(line_of(item)) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("driver PLUGIN describe|save FOLDER");
    run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& bad) {
    std::cerr << bad.what() << "\n";
    return 1;
  }
}

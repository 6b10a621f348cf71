#include "files.h"

#include <stdexcept>

namespace shale::test {

std::string little(std::uint64_t value, std::size_t width) {
  std::string out;
  for (std::size_t k = 0; k < width; ++k) out += static_cast<char>(value >> (8 * k));
  return out;
}

std::string zip_of(const std::vector<ZipRecord>& records) {
  std::string out, directory;
  for (const ZipRecord& r : records) {
    const std::string sizes = little(0, 4) + little(r.data.size(), 4) + little(r.data.size(), 4);
    const std::string shared =
        little(r.flags, 2) + little(r.method, 2) + little(0, 4) + sizes + little(r.name.size(), 2) + little(0, 2);
    directory += "PK\1\2" + little(20, 2) + little(20, 2) + shared + little(0, 10) + little(out.size(), 4) + r.name;
    out += "PK\3\4" + little(20, 2) + shared + r.name + r.data;
  }
  const std::string n = little(records.size(), 2);
  return out + directory + "PK\5\6" + little(0, 4) + n + n + little(directory.size(), 4) + little(out.size(), 4) +
         little(0, 2);
}

std::string patched(std::string text, const std::string& signature, std::size_t at, const std::string& bytes,
                    bool first) {
  const std::size_t found = first ? text.find(signature) : text.rfind(signature);
  if (found == std::string::npos) throw std::runtime_error("nothing to patch");
  return text.replace(found + at, bytes.size(), bytes);
}

std::string text_op(const std::string& text) { return "X" + little(text.size(), 4) + text; }

std::string tensor_pickle(const TensorOps& ops) {
  return "\x80\x02}" + text_op("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + text_op("storage") + ops.type +
         text_op(ops.key) + text_op("cpu") + ops.numel + "tQ" + ops.offset + ops.shape + ops.strides +
         "\x89"
         "ccollections\nOrderedDict\n)RtRs.";
}

std::string torch_file_of(const std::string& pickle) {
  return zip_of({{"a/data.pkl", pickle}, {"a/data/0", std::string(24, 'x')}, {"a/version", "3\n"}});
}

}  // namespace shale::test

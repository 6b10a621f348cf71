// Zip files and pickles put together by hand, so that any number in them can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::test {

std::string little(std::uint64_t value, std::size_t width);

struct ZipRecord {
  std::string name, data;
  unsigned method = 0, flags = 0;
};
// Short headers with sizes in them, nothing aligned.
std::string zip_of(const std::vector<ZipRecord>&);
// `text` with `width` bytes at `at` behind the last (first) `signature` replaced.
std::string patched(std::string text, const std::string& signature, std::size_t at, const std::string& bytes,
                    bool first = false);

std::string text_op(const std::string&);  // BINUNICODE
// A whole dict {"w": tensor of FloatStorage data/0} with the arguments given as opcodes.
struct TensorOps {
  std::string type = "ctorch\nFloatStorage\n", key = "0", numel = "K\x06", offset = std::string("K\0", 2);
  std::string shape = "K\x02K\x03\x86", strides = "K\x03K\x01\x86";
};
std::string tensor_pickle(const TensorOps&);
// A file of torch.save with this pickle and 24 bytes in data/0.
std::string torch_file_of(const std::string& pickle);

}  // namespace shale::test

#include "core/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/strict_json.h"

namespace shale {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct Dtype {
  const char* name;
  std::uint64_t bits;
};

constexpr Dtype kDtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},   {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"I16", 16}, {"F8_E5M2FNUZ", 8},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32}, {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

std::string read_header_text(const InputFile& file) {
  const std::uint64_t size = file.size();
  std::string start(std::min<std::uint64_t>(size, 32), '\0');
  file.read(0, start.data(), start.size());
  const std::string hint = looks_like(start);
  if (size < kLengthBytes) {
    fail(Code::input, file.path(), ": ", size, " bytes are no safetensors file, which has at least 10", hint);
  }
  std::uint64_t length = 0;
  for (int i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length < 2 || length > kMaxHeaderBytes || length > size - kLengthBytes) {
    fail(Code::input, file.path(), ": claims a header of ", length, " bytes; the file has ", size,
         " bytes and a header may have 2 to ", std::min(kMaxHeaderBytes, size - kLengthBytes), hint);
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, text.data(), length);
  if (text[0] != '{') fail(Code::input, file.path(), ": the header does not start with '{'", hint);
  return text;
}

// One tensor's entry in the header; offsets stay relative to the data.
class Entry {
 public:
  Entry(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail(Code::input, where_, ": expected an object, found ", shown(value));
  }

  StoredTensor read() const {
    StoredTensor tensor;
    const json& dtype = at("dtype");
    if (!dtype.is_string()) fail(Code::input, where_, ": dtype is ", shown(dtype), "; expected text");
    tensor.dtype = dtype.get<std::string>();
    for (const auto size : numbers("shape")) tensor.shape.push_back(static_cast<std::int64_t>(size));
    const auto offsets = numbers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail(Code::input, where_, ": data_offsets is ", shown(at("data_offsets")), "; expected [begin, end]");
    }
    tensor.begin = offsets[0], tensor.end = offsets[1];
    const std::uint64_t expected = bytes(tensor);
    if (tensor.end - tensor.begin != expected) {
      fail(Code::input, where_, ": ", tensor.dtype, ' ', shown(at("shape")), " takes ", expected,
           " bytes, but data_offsets ", shown(at("data_offsets")), " span ", tensor.end - tensor.begin);
    }
    return tensor;
  }

 private:
  const json& at(const char* key) const {
    const auto it = value_.find(key);
    if (it == value_.end()) fail(Code::input, where_, ": has no ", key);
    return *it;
  }

  std::vector<std::uint64_t> numbers(const char* key) const {
    const json& list = at(key);
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    bool good = list.is_array();
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; good && i < list.size(); ++i) {
      good = list[i].is_number_unsigned() && list[i].get<std::uint64_t>() <= kMost;
      if (good) all.push_back(list[i].get<std::uint64_t>());
    }
    if (!good) fail(Code::input, where_, ": ", key, " is ", shown(list), "; expected whole numbers from 0");
    return all;
  }

  std::uint64_t bytes(const StoredTensor& tensor) const {
    const auto* dtype =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](auto& d) { return tensor.dtype == d.name; });
    if (dtype == std::end(kDtypes)) fail(Code::input, where_, ": dtype ", shown(at("dtype")), " is not known");
    std::uint64_t bits = dtype->bits;
    for (const auto size : tensor.shape) {
      if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) {
        fail(Code::input, where_, ": shape ", shown(at("shape")), " is larger than any file");
      }
    }
    if (bits % 8 != 0) fail(Code::input, where_, ": ", tensor.dtype, " values do not end on a whole byte");
    return bits / 8;
  }

  const json& value_;
  std::string where_;
};

std::string named(const InputFile& file, const std::string& tensor) {
  return file.path() + ": tensor " + shown(json(tensor));
}

void check_metadata(const InputFile& file, const json& metadata) {
  bool good = metadata.is_null() || metadata.is_object();
  for (const auto& value : metadata) good = good && value.is_string();
  if (!good) fail(Code::input, file.path(), ": __metadata__ is ", shown(metadata), "; expected an object of texts");
}

// Turns offsets into positions in the file.
void check_places(const InputFile& file, StoredTensors& tensors, std::uint64_t data) {
  std::vector<StoredTensors::value_type*> order;
  for (auto& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  const std::uint64_t held = file.size() - data;
  std::uint64_t at = 0;
  for (auto* item : order) {
    StoredTensor& tensor = item->second;
    if (tensor.begin != at) {
      fail(Code::input, named(file, item->first), " begins at byte ", tensor.begin, " of the data, where ",
           tensor.begin > at ? "a gap follows" : "it overlaps", " the tensor that ends at byte ", at);
    }
    if (tensor.end > held) {
      fail(Code::input, named(file, item->first), " ends at byte ", tensor.end, " of the data, but the file holds ",
           held, " (size ", file.size(), ", expected at least ", data + tensor.end, "): it was cut short");
    }
    at = tensor.end;
    tensor.begin += data, tensor.end += data;
  }
  if (at != held) {
    fail(Code::input, file.path(), ": ", held - at, " bytes follow the last tensor (size ", file.size(), ", expected ",
         data + at, ")");
  }
}

}  // namespace

StoredTensors read_safetensors_header(const InputFile& file) {
  const std::string text = read_header_text(file);
  const json header = parse_strict(text, file.path());
  StoredTensors tensors;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(file, value);
    } else {
      tensors[name] = Entry(value, named(file, name)).read();
    }
  }
  check_places(file, tensors, kLengthBytes + text.size());
  return tensors;
}

std::optional<c10::ScalarType> parameter_dtype(const std::string& dtype) {
  if (dtype == "F32") return c10::ScalarType::Float;
  if (dtype == "BF16") return c10::ScalarType::BFloat16;
  if (dtype == "F16") return c10::ScalarType::Half;
  if (dtype == "F64") return c10::ScalarType::Double;
  return std::nullopt;
}

}  // namespace shale

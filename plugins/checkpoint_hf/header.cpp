#include "header.h"

#include <algorithm>
#include <limits>

namespace hf {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

struct Dtype {
  std::uint32_t dtype;
  const char* name;
};
constexpr Dtype kDtypes[] = {
    {SHALE_F64, "F64"}, {SHALE_F32, "F32"},   {SHALE_BF16, "BF16"},         {SHALE_F16, "F16"},
    {SHALE_I64, "I64"}, {SHALE_I32, "I32"},   {SHALE_I16, "I16"},           {SHALE_I8, "I8"},
    {SHALE_U8, "U8"},   {SHALE_BOOL, "BOOL"}, {SHALE_F8_E4M3FN, "F8_E4M3"}, {SHALE_F8_E5M2, "F8_E5M2"}};

// {"name": {"dtype": text, "shape": [counts], "data_offsets": [begin, end]}, "__metadata__": {"key": text}}
class Header final : public Events {
 public:
  using Events::Events;
  std::vector<Stored> tensors;

 private:
  enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4, kUnknown = 0 };

  void on_key(std::string& key) override {
    if (depth() == 1) {
      metadata_ = key == "__metadata__";
      if (!metadata_) tensors.push_back({std::move(key), 0, {}, 0, 0});
    } else if (depth() == 2 && !metadata_) {
      field_ = key == "dtype" ? kDtype : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : kUnknown;
      if ((seen_ & field_) != 0) of_tensor("has " + in_quotes(key) + " twice");
      seen_ |= field_;
    }
  }

  void on_text(std::string& text) override {
    if (depth() == 2 && metadata_) return;
    if (depth() == 2 && field_ == kDtype) {
      const auto dtype = dtype_of(text);
      if (!dtype) of_tensor("has dtype " + in_quotes(text) + ", which is none that is read here");
      tensors.back().dtype = *dtype;
      return;
    }
    expect_unknown();
  }

  void on_count(std::uint64_t n) override {
    if (depth() != 3 || metadata_ || field_ == kUnknown || field_ == kDtype) return expect_unknown();
    if (n > kMost) of_tensor("has a number above 2^63");
    if (field_ == kShape) {
      if (tensors.back().shape.size() == SHALE_MAX_DIMS) of_tensor("has more than 8 dimensions");
      tensors.back().shape.push_back(static_cast<std::int64_t>(n));
    } else {
      if (n_offsets_ == 2) of_tensor("has more than two data_offsets");
      (n_offsets_++ == 0 ? tensors.back().begin : tensors.back().end) = n;
    }
  }

  void on_value(What what) override {
    if (depth() == 0 && what == What::object) return;
    if (depth() == 0) bad("its header is no JSON object");
    if (depth() == 1 && metadata_ && (what == What::object || what == What::null)) return;
    if (depth() == 1 && !metadata_ && what == What::object) {
      seen_ = 0, n_offsets_ = 0, field_ = kUnknown;
      return;
    }
    if (depth() == 2 && !metadata_ && (field_ == kShape || field_ == kOffsets) && what == What::list) return;
    expect_unknown();
  }

  void on_close() override {
    if (depth() != 1 || metadata_) return;
    for (const auto& [field, name] : {std::pair{kDtype, "dtype"}, {kShape, "shape"}, {kOffsets, "data_offsets"}})
      if ((seen_ & field) == 0) of_tensor(std::string("has no '") + name + "'");
    if (n_offsets_ != 2) of_tensor("has not two data_offsets");
  }

  // Fields that nobody knows may hold anything, all others only what was looked for before.
  void expect_unknown() const {
    if (metadata_) bad("its header: __metadata__ holds something else than texts");
    if (depth() < 2) of_tensor("is described by no JSON object");
    if (field_ == kDtype) of_tensor("has a dtype that is no text");
    if (field_ == kShape) of_tensor("has a shape that is no list of whole numbers from 0");
    if (field_ == kOffsets) of_tensor("has data_offsets that are no list of whole numbers from 0");
  }
  [[noreturn]] void of_tensor(const std::string& what) const {
    if (tensors.empty()) bad("its header is no JSON object");
    bad("its tensor " + in_quotes(tensors.back().name) + " " + what);
  }

  bool metadata_ = false;
  unsigned field_ = kUnknown, seen_ = 0, n_offsets_ = 0;
};

std::uint64_t bytes_of(const Stored& t, const std::string& file) {
  std::uint64_t n = SHALE_DTYPE_BITS(t.dtype) / 8;
  for (const std::int64_t dim : t.shape)
    if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(dim), &n) || n > kMost)
      corrupt(file, "its tensor " + in_quotes(t.name) + " has a shape of more than 2^63 bytes");
  return n;
}

// Sorted by place: each tensor begins where the one before ends, and the last ends with the file.
void check_places(std::vector<Stored>& tensors, std::uint64_t data, const std::string& file) {
  std::ranges::sort(tensors, {}, [](const Stored& t) { return std::pair(t.begin, t.end); });
  std::uint64_t at = 0;
  for (const Stored& t : tensors) {
    const std::string of = "its tensor " + in_quotes(t.name) + " ";
    const std::string place = "[" + std::to_string(t.begin) + ", " + std::to_string(t.end) + ")";
    if (t.end < t.begin) corrupt(file, of + "ends before it begins: " + place);
    if (t.end > data)
      corrupt(file, of + "lies at " + place + " of " + std::to_string(data) + " bytes of data: the file is cut off");
    const std::uint64_t bytes = bytes_of(t, file);
    if (t.end - t.begin != bytes)
      corrupt(file, of + "lies at " + place + ", its shape takes " + std::to_string(bytes) + " bytes");
    if (t.begin < at) corrupt(file, of + "overlaps another: it begins at " + std::to_string(t.begin) + " of the data");
    if (t.begin > at) corrupt(file, "has a hole of unused bytes before its tensor " + in_quotes(t.name));
    at = t.end;
  }
  if (at != data) corrupt(file, "has " + std::to_string(data - at) + " bytes behind its last tensor");
}

}  // namespace

const char* dtype_name(std::uint32_t dtype) {
  for (const Dtype& known : kDtypes)
    if (known.dtype == dtype) return known.name;
  return nullptr;
}

std::optional<std::uint32_t> dtype_of(const std::string& name) {
  for (const Dtype& known : kDtypes)
    if (name == known.name) return known.dtype;
  return std::nullopt;
}

std::vector<Stored> read_header(const Folder& folder, const std::string& file) {
  const std::uint64_t size = folder.size(file);
  if (size < kLengthBytes) corrupt(file, "is no safetensors file: it has " + std::to_string(size) + " bytes");
  const std::string digits = folder.read(file, 0, kLengthBytes);
  std::uint64_t length = 0;
  for (std::size_t k = kLengthBytes; k-- > 0;) length = length << 8 | static_cast<unsigned char>(digits[k]);
  if (length == 0 || length > kLargestHeader || length > size - kLengthBytes)
    corrupt(file, "has a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(size) +
                      ": it is no safetensors file or cut off");
  const std::string text = folder.read(file, kLengthBytes, length);
  if (text[0] != '{') corrupt(file, "its header does not begin with '{'");
  Header header(file);
  header.read(text);
  check_places(header.tensors, size - kLengthBytes - length, file);
  std::ranges::sort(header.tensors, {}, &Stored::name);
  const auto twice = std::ranges::adjacent_find(header.tensors, {}, &Stored::name);
  if (twice != header.tensors.end()) corrupt(file, "has the tensor " + in_quotes(twice->name) + " twice");
  for (Stored& t : header.tensors) t.begin += kLengthBytes + length, t.end += kLengthBytes + length;
  return std::move(header.tensors);
}

std::string header_text(const std::vector<Stored>& tensors) {
  Json header{{"__metadata__", {{"format", "pt"}}}};
  for (const Stored& t : tensors)
    header[t.name] = {{"dtype", dtype_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kLargestHeader)
    throw shale::sdk::Error(SHALE_UNSUPPORTED, "checkpoint", "too many tensors for the header of one file");
  std::string length(kLengthBytes, '\0');
  for (std::size_t k = 0; k < kLengthBytes; ++k) length[k] = static_cast<char>(text.size() >> (8 * k));
  return length + text;
}

}  // namespace hf

#include "tensors.h"

#include <cstring>

namespace torch_file {
namespace {

struct Token {  // the name of the file follows
  std::uint64_t offset;
  std::uint32_t dtype, ndim;
  std::int64_t shape[SHALE_MAX_DIMS], strides[SHALE_MAX_DIMS];
};
constexpr std::size_t kLongestToken = 256;

// The arguments of a call, at least `least`.
std::span<const Id> arguments(const Pickle& pickle, Id call, std::size_t least) {
  const auto out = pickle.items(pickle.items(call)[1]);
  if (out.size() < least) pickle.corrupt("a tensor of " + std::to_string(out.size()) + " arguments");
  return out;
}

std::uint64_t natural(const Pickle& pickle, Id id, const char* what) {
  if (pickle.kind(id) != Kind::integer || pickle[id].integer < 0) pickle.corrupt(std::string(what) + " is no size");
  return static_cast<std::uint64_t>(pickle[id].integer);
}

struct Storage {
  std::uint32_t dtype = 0;  // 0 = untyped: numel counts bytes
  std::uint64_t numel = 0;
  std::string record;
};

Storage storage_of(const Pickle& pickle, Id id) {
  if (pickle.kind(id) != Kind::persistent || pickle.kind(pickle.items(id)[0]) != Kind::tuple)
    pickle.corrupt("the storage of a tensor is none");
  const auto parts = pickle.items(pickle.items(id)[0]);
  if (parts.size() != 5 || pickle[parts[0]].text != "storage" || pickle.kind(parts[1]) != Kind::global ||
      pickle.kind(parts[2]) != Kind::text)
    pickle.corrupt("the storage of a tensor is none");
  Storage out;
  const std::int64_t kind = pickle[parts[1]].integer;
  if (kind >= kFirstStorage && kind < kFirstDtype)
    out.dtype = kTypes[kind - kFirstStorage].dtype;
  else if (kind != kUntypedStorage)
    pickle.corrupt("the storage of a tensor has no type of storage");
  out.numel = natural(pickle, parts[4], "the length of a storage");
  out.record = "data/" + std::string(pickle[parts[2]].text);
  return out;
}

}  // namespace

std::uint32_t dtype_of(const Pickle& pickle, Id id) {
  const std::int64_t type = pickle.kind(id) == Kind::global ? pickle[id].integer - kFirstDtype : -1;
  if (type < 0 || type >= static_cast<std::int64_t>(std::size(kTypes))) pickle.corrupt("the dtype of a tensor is none");
  return kTypes[type].dtype;
}

const Type& type_of(std::uint32_t dtype) {
  for (const Type& type : kTypes)
    if (type.dtype == dtype) return type;
  throw shale::sdk::Error(SHALE_UNSUPPORTED, "dtype", "this format cannot hold dtype " + std::to_string(dtype));
}

std::vector<Global> tensor_globals() {
  std::vector<Global> out = {{"torch._utils", "_rebuild_tensor_v2"},
                             {"torch._utils", "_rebuild_tensor_v3"},
                             {"torch._utils", "_rebuild_parameter"},
                             {"torch", "Size"},
                             {"collections", "OrderedDict", true},
                             {"torch.storage", "UntypedStorage"},
                             {"torch", "device"},
                             {"_codecs", "encode"}};
  for (const Type& type : kTypes) out.push_back({"torch", type.storage});
  for (const Type& type : kTypes) out.push_back({"torch", type.name});
  return out;
}

std::uint64_t Tensor::numel() const {
  std::uint64_t n = 1;
  for (const std::int64_t size : shape) n *= static_cast<std::uint64_t>(size);
  return n;
}

bool Tensor::reach(std::uint64_t most, std::uint64_t& elements) const {
  unsigned __int128 n = 1, last = 0;
  bool none = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0 || strides[d] < 0) return false;
    none = none || shape[d] == 0;
    n *= static_cast<unsigned __int128>(std::max<std::int64_t>(shape[d], 1));
    if (n > most && n >> 62 != 0) return false;  // also keeps the product from overflowing
    if (shape[d] > 1) last += static_cast<unsigned __int128>(shape[d] - 1) * static_cast<std::uint64_t>(strides[d]);
  }
  elements = none ? 0 : static_cast<std::uint64_t>(std::min<unsigned __int128>(last, most)) + 1;
  return none || (last < most && n <= most);
}

bool Tensor::row_major() const {
  std::int64_t next = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] > 1 && strides[d] != next) return false;
    next *= shape[d];
  }
  return true;
}

bool is_tensor(const Pickle& pickle, Id id) {
  return pickle.is_call(id, kRebuildTensor) || pickle.is_call(id, kRebuildTensorTyped) ||
         pickle.is_call(id, kRebuildParameter);
}

std::vector<std::int64_t> sizes_of(const Pickle& pickle, Id id) {
  if (pickle.is_call(id, kSize)) id = arguments(pickle, id, 1)[0];
  if (pickle.kind(id) != Kind::tuple && pickle.kind(id) != Kind::list) pickle.corrupt("the shape of a tensor is none");
  if (pickle.items(id).size() > SHALE_MAX_DIMS) pickle.corrupt("a tensor of more than 8 dimensions");
  std::vector<std::int64_t> out;
  for (const Id size : pickle.items(id))
    out.push_back(static_cast<std::int64_t>(natural(pickle, size, "a dimension of a tensor")));
  return out;
}

Tensor tensor_of(const Pickle& pickle, Id id, const Archive& archive) {
  if (pickle.is_call(id, kRebuildParameter)) id = arguments(pickle, id, 1)[0];
  const bool typed = pickle.is_call(id, kRebuildTensorTyped);
  if (!typed && !pickle.is_call(id, kRebuildTensor)) pickle.corrupt("a parameter that is no tensor");
  const auto parts = arguments(pickle, id, typed ? 7 : 6);
  const Storage storage = storage_of(pickle, parts[0]);
  Tensor out{typed ? dtype_of(pickle, parts[6]) : storage.dtype, sizes_of(pickle, parts[2]),
             sizes_of(pickle, parts[3])};
  if (out.dtype == 0) pickle.corrupt("a tensor without dtype");
  const std::uint64_t width = out.width(), unit = storage.dtype == 0 ? 1 : SHALE_DTYPE_BITS(storage.dtype) / 8;
  if (storage.dtype != 0 && storage.dtype != out.dtype) pickle.corrupt("a tensor of another dtype than its storage");
  if (out.shape.size() != out.strides.size()) pickle.corrupt("a tensor has other strides than dimensions");
  const Record& record = archive.at(storage.record);
  if (storage.numel > record.bytes / unit || storage.numel * unit != record.bytes)
    pickle.corrupt(shown(storage.record) + " has " + std::to_string(record.bytes) + " bytes, not " +
                   std::to_string(storage.numel) + " elements of " + std::to_string(unit));
  const std::uint64_t begin = natural(pickle, parts[1], "the offset of a tensor"), all = record.bytes / width;
  std::uint64_t elements = 0;
  if (begin > all || !out.reach(all - begin, elements))
    pickle.corrupt("a tensor reaches outside the " + std::to_string(all) + " elements of " + shown(storage.record));
  out.offset = record.offset + begin * width;
  return out;
}

std::string token_of(const Tensor& tensor, const std::string& file) {
  Token token{tensor.offset, tensor.dtype, static_cast<std::uint32_t>(tensor.shape.size()), {}, {}};
  std::ranges::copy(tensor.shape, token.shape);
  std::ranges::copy(tensor.strides, token.strides);
  if (file.size() > kLongestToken - sizeof token)
    throw shale::sdk::Error(SHALE_UNSUPPORTED, file, "rename the file: its name is too long to read strided tensors");
  return std::string(reinterpret_cast<const char*>(&token), sizeof token) + file;
}

std::string file_of(shale_str token) {
  if (token.len <= sizeof(Token)) throw shale::sdk::Error(SHALE_BAD_ARGUMENT, "token", "is none of this format");
  return std::string(shale::sdk::view(token).substr(sizeof(Token)));
}

void read_strided(Source& source, shale_str text, void* to, std::uint64_t n) {
  Token token;
  std::memcpy(&token, text.ptr, sizeof token);
  const std::size_t dims = std::min<std::size_t>(token.ndim, SHALE_MAX_DIMS);
  const Tensor tensor{
      token.dtype, {token.shape, token.shape + dims}, {token.strides, token.strides + dims}, token.offset};
  const std::uint64_t width = std::max<std::uint64_t>(tensor.width(), 1);
  std::uint64_t elements = 0;
  if (token.offset > source.size() || !tensor.reach((source.size() - token.offset) / width, elements) ||
      tensor.numel() * width != n)
    source.corrupt(token.offset, "a tensor reaches outside the file");
  const std::string from = source.bytes(token.offset, elements * width);
  std::vector<std::int64_t> place(dims, 0);
  std::uint64_t at = 0;  // in `from`, elements
  for (auto* out = static_cast<char*>(to); out < static_cast<char*>(to) + n; out += width) {
    std::memcpy(out, from.data() + at * width, width);
    for (std::size_t d = dims; d-- > 0;) {
      at += static_cast<std::uint64_t>(tensor.strides[d]);
      if (++place[d] < tensor.shape[d]) break;
      at -= static_cast<std::uint64_t>(tensor.strides[d] * place[d]);
      place[d] = 0;
    }
  }
}

}  // namespace torch_file

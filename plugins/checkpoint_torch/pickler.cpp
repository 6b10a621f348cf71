#include "pickler.h"

#include <bit>
#include <vector>

#include "tensors.h"

namespace torch_file {

void Pickler::number(std::uint64_t value, std::size_t width) {
  for (std::size_t k = 0; k < width; ++k) out_ += static_cast<char>(value >> (8 * k));
}

Pickler& Pickler::global(const char* module, const char* name) {
  return op(std::string("c") + module + "\n" + name + "\n");
}

Pickler& Pickler::tuple(std::span<const std::int64_t> sizes) {
  op("(");
  for (const std::int64_t size : sizes) integer(size);
  return op("t");
}

Pickler& Pickler::text(std::string_view text) {
  op("X");
  number(text.size(), 4);
  return op(text);
}

Pickler& Pickler::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value < 256) {
    op("K"), number(bits, 1);
  } else if (value == static_cast<std::int32_t>(value)) {
    op("J"), number(bits, 4);
  } else {
    op("\x8a\x08"), number(bits, 8);
  }
  return *this;
}

Pickler& Pickler::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  op("G");
  for (std::size_t k = 8; k-- > 0;) out_ += static_cast<char>(bits >> (8 * k));
  return *this;
}

Pickler& Pickler::value(const shale_value& value) {
  if (value.type == SHALE_OPT_TEXT) return text(shale::sdk::view(value.s));
  if (value.type == SHALE_OPT_FLOAT) return real(value.f);
  return integer(value.i);
}

Pickler& Pickler::tensor(std::uint32_t dtype, std::span<const std::int64_t> shape, std::uint64_t storage) {
  const Type& type = type_of(dtype);
  const bool typed = type.storage[0] == '\0';
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t numel = 1;
  for (std::size_t d = shape.size(); d-- > 0; numel *= shape[d]) strides[d] = numel;
  global("torch._utils", typed ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  op("((").text("storage");
  typed ? global("torch.storage", "UntypedStorage") : global("torch", type.storage);
  text(std::to_string(storage)).text("cpu").integer(numel).op("tQ").integer(0);  // types without storage: one byte
  tuple(shape);
  tuple(strides);
  op("\x89");
  global("collections", "OrderedDict");
  op(")R");
  if (typed) global("torch", type.name);
  return op("tR");
}

}  // namespace torch_file

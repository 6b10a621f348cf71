// Writes the few opcodes of protocol 2 that torch.load(weights_only=True) reads: dicts, lists, values and tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/plugin.hpp"

namespace torch_file {

class Pickler {
 public:
  Pickler& op(std::string_view opcodes) {
    out_ += opcodes;
    return *this;
  }
  Pickler& text(std::string_view text);
  Pickler& integer(std::int64_t);
  Pickler& real(double);
  Pickler& value(const shale_value&);
  // Of the bytes of record data/<storage>, all of it.
  Pickler& tensor(std::uint32_t dtype, std::span<const std::int64_t> shape, std::uint64_t storage);
  Pickler& global(const char* module, const char* name);
  Pickler& tuple(std::span<const std::int64_t>);
  std::string take() { return std::move(out_); }

 private:
  void number(std::uint64_t value, std::size_t width);
  std::string out_;
};

}  // namespace torch_file

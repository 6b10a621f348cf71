// A pickle as data. Nothing is executed: a class or function is a name of a fixed table, a call is kept as what was
// called with what, and what the names mean is up to the reader of the result.
#pragma once

#include <span>
#include <vector>

#include "source.h"

namespace torch_file {

struct Global {
  const char *module, *name;
  bool makes_dict = false;  // called without arguments it is an empty dict: OrderedDict
};

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,
  bytes,
  tuple,
  list,
  dict,        // items: key, value, key, value ...
  global,      // integer: position in the table
  call,        // items: callee, arguments and, when BUILD gave one, state
  persistent,  // items: what BINPERSID got
};

struct Value {
  Kind kind = Kind::none;
  std::uint32_t items = 0;  // of containers
  std::int64_t integer = 0;
  std::string_view text;  // into the bytes of the pickle
};

using Id = std::uint32_t;  // of a value

class Pickle {
 public:
  // Protocols 2 to 5. `file` and `record` are for messages. At most one value per byte, so memory is bounded by size.
  Pickle(const Source& file, std::string record, std::string bytes, std::span<const Global> known);
  Id root() const { return root_; }
  const Value& operator[](Id id) const { return values_[id]; }
  Kind kind(Id id) const { return values_[id].kind; }
  std::span<const Id> items(Id id) const { return lists_[values_[id].items]; }
  double real(Id id) const;
  // The value of a text key of a dict, or nothing.
  const Id* find(Id dict, std::string_view key) const;
  bool is_call(Id id, std::int64_t global) const;
  std::uint64_t size() const { return bytes_.size(); }
  [[noreturn]] void corrupt(const std::string& what) const { file_.corrupt(record_ + ": " + what); }
  const Source& file() const { return file_; }

 private:
  friend class Machine;
  const Source& file_;
  std::string record_, bytes_;
  std::span<const Global> known_;
  std::vector<Value> values_;
  std::vector<std::vector<Id>> lists_;
  Id root_ = 0;
};

}  // namespace torch_file

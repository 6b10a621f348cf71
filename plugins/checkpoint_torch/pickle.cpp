#include "pickle.h"

#include <bit>
#include <cstdio>

namespace torch_file {

// The stack machine. Every pop, memo slot, length and name is checked before it is used.
class Machine {
 public:
  explicit Machine(Pickle& to) : to_(to), in_(to.bytes_) {}

  void run() {
    if (in_.size() < 2 || in_[0] != '\x80') fail("does not begin as a pickle of protocol 2 to 5");
    for (bool on = true; on;) {
      begin_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') {
        on = false;
      } else if (!literal(op) && !text(op) && !container(op) && !memory(op) && !object(op)) {
        char name[8];
        std::snprintf(name, sizeof name, "0x%02x", op);
        fail("the opcode " + std::string(name) + " is not among those that can be read");
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("the stack does not end with one value");
    if (at_ != in_.size()) fail("bytes follow the end of the pickle");
    to_.root_ = stack_[0];
    for (const Value& value : to_.values_)
      if (value.kind == Kind::dict) check_keys(to_.lists_[value.items]);
  }

 private:
  [[noreturn]] void fail(const std::string& what) { to_.corrupt("byte " + std::to_string(begin_) + ": " + what); }

  // Python would take the last of two equal keys, another reader the first: such a file means two things.
  void check_keys(const std::vector<Id>& items) {
    std::vector<std::string_view> keys;
    for (std::size_t k = 0; k < items.size(); k += 2)
      if (to_.kind(items[k]) == Kind::text) keys.push_back(to_[items[k]].text);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) to_.corrupt("a dict has the key " + shown(*twice) + " twice");
  }

  std::string_view take(std::uint64_t n) {
    if (n > in_.size() - at_) fail("the pickle ends too early");
    const std::string_view out = in_.substr(at_, n);
    at_ += n;
    return out;
  }
  std::uint64_t count(std::size_t width) { return number(take(width), 0, width); }
  std::string_view line() {
    const std::size_t end = in_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle ends too early");
    const std::string_view out = take(end - at_);
    take(1);
    return out;
  }

  Id add(Value value) {
    to_.values_.push_back(value);
    stack_.push_back(static_cast<Id>(to_.values_.size() - 1));
    return stack_.back();
  }
  bool push(Kind kind, std::int64_t integer = 0, std::string_view text = {}) {
    add({kind, 0, integer, text});
    return true;
  }
  bool push_list(Kind kind, std::vector<Id> items) {
    to_.lists_.push_back(std::move(items));
    add({kind, static_cast<std::uint32_t>(to_.lists_.size() - 1), 0, {}});
    return true;
  }
  Id pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("takes a value from an empty stack");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Id top() {
    const Id id = pop();
    stack_.push_back(id);
    return id;
  }
  std::vector<Id> pop_some(std::size_t n) {
    std::vector<Id> out(n);
    while (n-- > 0) out[n] = pop();
    return out;
  }
  std::vector<Id> pop_mark() {
    if (marks_.empty()) fail("there is no mark on the stack");
    std::vector<Id> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  std::string_view pop_text() {
    const Value& value = to_.values_[pop()];
    if (value.kind != Kind::text) fail("a name is no text");
    return value.text;
  }

  bool literal(unsigned op) {
    switch (op) {
      case 0x80:
        if (begin_ != 0) fail("a second beginning");
        if (const auto version = count(1); version < 2 || version > 5)
          fail("protocol " + std::to_string(version) + " cannot be read, only 2 to 5");
        return true;
      case 0x95:
        if (count(8) > in_.size() - at_) fail("a frame reaches past the end");
        return true;
      case 'N':
        return push(Kind::none);
      case 0x88:
      case 0x89:
        return push(Kind::boolean, op == 0x88);
      case 'K':
        return push(Kind::integer, static_cast<std::int64_t>(count(1)));
      case 'M':
        return push(Kind::integer, static_cast<std::int64_t>(count(2)));
      case 'J':
        return push(Kind::integer, static_cast<std::int32_t>(count(4)));
      case 0x8a:
        return push(Kind::integer, long_integer());
      case 'G': {
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        return push(Kind::real, std::bit_cast<std::int64_t>(bits));
      }
    }
    return false;
  }

  std::int64_t long_integer() {
    const std::size_t n = count(1);
    if (n > 8) fail("an integer of more than 64 bits");
    if (n == 0) return 0;
    const std::uint64_t raw = number(take(n), 0, n);
    const unsigned unused = static_cast<unsigned>(64 - 8 * n);
    return static_cast<std::int64_t>(raw << unused) >> unused;
  }

  bool text(unsigned op) {
    switch (op) {
      case 'X':
        return push(Kind::text, 0, take(count(4)));
      case 0x8c:
        return push(Kind::text, 0, take(count(1)));
      case 0x8d:
        return push(Kind::text, 0, take(count(8)));
      case 'B':
        return push(Kind::bytes, 0, take(count(4)));
      case 'C':
        return push(Kind::bytes, 0, take(count(1)));
      case 0x8e:
        return push(Kind::bytes, 0, take(count(8)));
    }
    return false;
  }

  void extend(Id container, Kind kind, std::vector<Id> items) {
    const Value& value = to_.values_[container];
    if (value.kind != kind || (kind == Kind::dict && items.size() % 2 != 0))
      fail(kind == Kind::dict ? "puts pairs into what is no dict" : "appends to what is no list");
    auto& all = to_.lists_[value.items];
    all.insert(all.end(), items.begin(), items.end());
  }

  bool container(unsigned op) {
    std::vector<Id> items;
    switch (op) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_mark();
        return true;
      case ')':
        return push_list(Kind::tuple, {});
      case 't':
        return push_list(Kind::tuple, pop_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push_list(Kind::tuple, pop_some(op - 0x84));
      case ']':
        return push_list(Kind::list, {});
      case '}':
        return push_list(Kind::dict, {});
      case 'a':
      case 's':
        items = pop_some(op == 'a' ? 1 : 2);
        extend(top(), op == 'a' ? Kind::list : Kind::dict, std::move(items));
        return true;
      case 'e':
      case 'u':
        items = pop_mark();
        extend(top(), op == 'e' ? Kind::list : Kind::dict, std::move(items));
        return true;
    }
    return false;
  }

  bool memory(unsigned op) {
    switch (op) {
      case 'q':
        remember(count(1));
        return true;
      case 'r':
        remember(count(4));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'h':
      case 'j': {
        const std::uint64_t slot = count(op == 'h' ? 1 : 4);
        if (slot >= memo_.size() || memo_[slot] == kNothing) fail("memo " + std::to_string(slot) + " is empty");
        stack_.push_back(memo_[slot]);
        return true;
      }
    }
    return false;
  }

  void remember(std::uint64_t slot) {
    if (slot > in_.size()) fail("memo " + std::to_string(slot) + " is out of range");
    if (slot >= memo_.size()) memo_.resize(slot + 1, kNothing);
    memo_[slot] = top();
  }

  void add_global(std::string_view module, std::string_view name) {
    for (std::size_t k = 0; k < to_.known_.size(); ++k)
      if (module == to_.known_[k].module && name == to_.known_[k].name)
        return (void)push(Kind::global, static_cast<std::int64_t>(k));
    fail("names " + shown(std::string(module) + "." + std::string(name)) + ", which is not allowed");
  }

  void call(Id callee, Id arguments) {
    if (to_.kind(callee) != Kind::global) fail("calls what is no known name");
    if (to_.kind(arguments) != Kind::tuple) fail("the arguments of a call are no tuple");
    if (!to_.known_[static_cast<std::size_t>(to_[callee].integer)].makes_dict)
      return (void)push_list(Kind::call, {callee, arguments});
    if (!to_.items(arguments).empty()) fail("an ordered dict with arguments");
    push_list(Kind::dict, {});
  }

  bool object(unsigned op) {
    switch (op) {
      case 'c': {
        const std::string_view module = line();
        add_global(module, line());
        return true;
      }
      case 0x93: {
        const std::string_view name = pop_text();
        add_global(pop_text(), name);
        return true;
      }
      case 'R':
      case 0x81: {
        const Id arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case 'b': {
        const Id state = pop();
        const Value& value = to_.values_[top()];
        if (value.kind == Kind::dict) return true;  // attributes of an ordered dict: _metadata of a module
        if (value.kind != Kind::call || to_.lists_[value.items].size() != 2) fail("gives state to what takes none");
        to_.lists_[value.items].push_back(state);
        return true;
      }
      case 'Q':
        return push_list(Kind::persistent, {pop()});
    }
    return false;
  }

  static constexpr Id kNothing = 0xffffffff;
  Pickle& to_;
  const std::string_view in_;
  std::uint64_t at_ = 0, begin_ = 0;
  std::vector<Id> stack_, memo_;
  std::vector<std::size_t> marks_;
};

Pickle::Pickle(const Source& file, std::string record, std::string bytes, std::span<const Global> known)
    : file_(file), record_(std::move(record)), bytes_(std::move(bytes)), known_(known) {
  Machine(*this).run();
}

double Pickle::real(Id id) const { return std::bit_cast<double>(values_[id].integer); }

const Id* Pickle::find(Id dict, std::string_view key) const {
  if (kind(dict) != Kind::dict) return nullptr;
  const auto all = items(dict);
  for (std::size_t k = 0; k + 1 < all.size(); k += 2)
    if (kind(all[k]) == Kind::text && values_[all[k]].text == key) return &all[k + 1];
  return nullptr;
}

bool Pickle::is_call(Id id, std::int64_t global) const {
  return kind(id) == Kind::call && values_[items(id)[0]].integer == global;
}

}  // namespace torch_file

// The one exception type of shale and the check for broken invariants. Any thread.
#pragma once

#include <exception>
#include <string>

#include "core/base/text.h"

namespace shale {

// The class of an error; the value is the exit code of the program.
enum class Code : int {
  config = 2,      // a bad setting or plugin, found before anything starts
  input = 3,       // a bad model or data file
  checkpoint = 4,  // a snapshot that cannot be used
  dist = 5,        // start-up or a peer failed
  io = 6,          // a read or write failed, or memory ran out
  numeric = 7,     // numbers that are not finite
  internal = 70,   // a bug of ours
};

const char* code_name(Code);  // "E-config", ... as printed before a message

// One line that says what is wrong, where, and what to do.
class Error : public std::exception {
 public:
  Error(Code code, std::string text) : code_(code), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  Code code() const { return code_; }
  // A follow-up of another rank's failure (lost connection, cancelled wait): never reported as the first cause.
  bool secondary() const { return secondary_; }
  Error& mark_secondary() { secondary_ = true; return *this; }

 private:
  Code code_;
  std::string text_;
  bool secondary_ = false;
};

// Throws Error; the text is the concatenation of the parts, as str() writes them.
template <class... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  throw Error(code, shale::str(parts...));
}

// For invariants of our own: a failure is Code::internal, a bug.
template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) fail(Code::internal, parts...);
}

}  // namespace shale

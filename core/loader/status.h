// shale_status, the errors that cross the border, and shale::Error, the one of the core.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/loader/abi.h"

struct shale_status {
  std::uint32_t code = SHALE_INTERNAL;
  std::string where, text;
  std::optional<shale::Error> cause;  // set when a host function ended in it: comes back out unchanged in kind
};

namespace shale {

struct StatusFree {
  void operator()(shale_status*) const noexcept;
};
using Status = std::unique_ptr<shale_status, StatusFree>;  // null = fine

// Never null, even without memory.
shale_status* make_status(std::uint32_t code, std::string_view where, std::string_view text) noexcept;
Status copy_status(const shale_status&) noexcept;
// Inside a catch block only.
shale_status* current_exception_status() noexcept;

// Runs the body of a function that plugins call: nothing thrown in it crosses the border.
template <class F>
shale_status* guarded(F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return current_exception_status();
  }
}

// The class of error, and so the exit code, of a status: the table in sdk/include/shale/plugin.h.
Code code_of_status(std::uint32_t status_code);
std::uint32_t status_of_code(Code);

// The five status functions of a host table.
void set_status_functions(shale_host&);

// Control characters become blanks and very long texts are cut, so that a message stays one line.
std::string one_line(std::string_view text);

}  // namespace shale

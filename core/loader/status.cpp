#include "core/loader/status.h"

#include <new>

namespace shale {
namespace {

// What status_make hands out when there is no memory for a status; never freed.
shale_status& no_memory() {
  static shale_status status{SHALE_OUT_OF_MEMORY, {}, "no memory", {}};
  return status;
}

shale_status* host_status_make(void*, std::uint32_t code, shale_str where, shale_str text) {
  return make_status(code, {where.ptr, where.ptr ? where.len : 0}, {text.ptr, text.ptr ? text.len : 0});
}
std::uint32_t host_status_code(const shale_status* s) { return s ? s->code : 0; }
shale_str host_status_where(const shale_status* s) { return s ? to_c(s->where) : shale_str{"", 0}; }
shale_str host_status_text(const shale_status* s) { return s ? to_c(s->text) : shale_str{"", 0}; }
void host_status_free(shale_status* s) { StatusFree{}(s); }

}  // namespace

void StatusFree::operator()(shale_status* s) const noexcept {
  if (s != &no_memory()) delete s;
}

shale_status* make_status(std::uint32_t code, std::string_view where, std::string_view text) noexcept {
  try {
    return new shale_status{code, std::string(where), std::string(text), {}};
  } catch (...) {
    return &no_memory();
  }
}

Status copy_status(const shale_status& from) noexcept {
  try {
    return Status(new shale_status(from));
  } catch (...) {
    return Status(&no_memory());
  }
}

shale_status* current_exception_status() noexcept {
  try {
    try {
      throw;
    } catch (const Error& e) {
      return new shale_status{status_of_code(e.code()), {}, e.what(), e};
    } catch (const std::bad_alloc&) {
      return make_status(SHALE_OUT_OF_MEMORY, "", "host memory");
    } catch (const std::exception& e) {
      const std::string_view text = e.what();  // those of LibTorch go on with a stack trace
      return make_status(SHALE_INTERNAL, "", text.substr(0, text.find('\n')));
    }
  } catch (...) {
    return make_status(SHALE_INTERNAL, "", "an exception of unknown type");
  }
}

Code code_of_status(std::uint32_t status_code) {
  switch (status_code) {
    case SHALE_BAD_OPTION:
    case SHALE_UNSUPPORTED:
      return Code::config;
    case SHALE_OUT_OF_MEMORY:
    case SHALE_NO_SPACE:
    case SHALE_IO_ERROR:
      return Code::io;
    case SHALE_NOT_FOUND:
      return Code::input;
    case SHALE_CORRUPT:
      return Code::checkpoint;
    case SHALE_TIMED_OUT:
    case SHALE_CANCELLED:
      return Code::dist;
    case SHALE_NOT_FINITE:
      return Code::numeric;
    default:
      return Code::internal;
  }
}

std::uint32_t status_of_code(Code code) {
  switch (code) {
    case Code::config:
      return SHALE_UNSUPPORTED;
    case Code::input:
      return SHALE_NOT_FOUND;
    case Code::checkpoint:
      return SHALE_CORRUPT;
    case Code::dist:
      return SHALE_TIMED_OUT;
    case Code::io:
      return SHALE_IO_ERROR;
    case Code::numeric:
      return SHALE_NOT_FINITE;
    case Code::internal:
      break;
  }
  return SHALE_INTERNAL;
}

void set_status_functions(shale_host& host) {
  host.status_make = host_status_make;
  host.status_code = host_status_code;
  host.status_where = host_status_where;
  host.status_text = host_status_text;
  host.status_free = host_status_free;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = 2000;
  std::string out(text.substr(0, kLongest));
  if (text.size() > kLongest) out += "...";
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

}  // namespace shale

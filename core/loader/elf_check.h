// Is a file a whole shared library for this machine? Asked before it is mapped: the system's loader may crash on one
// that was cut off.
#pragma once

#include <string>

namespace shale {

// "" = yes; else what is wrong, e.g. "it is not a shared library" or "it is cut off: ...". Error{io} when the file
// cannot be read. Never trusts a number in the file.
std::string elf_problem(const std::string& path);

}  // namespace shale

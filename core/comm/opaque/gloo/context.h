// Stand-in for the Gloo headers, which the PyPI wheel does not ship although its c10d headers include them. Declares
// only what ProcessGroupGloo.hpp names; everything else of Gloo stays inside libtorch_cpu.so. No object of these types
// is made or derived from by shale.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);  // defined in libtorch_cpu.so
};

}  // namespace gloo

// Monotonic time. Any thread.
#pragma once

#include <chrono>

namespace shale {

inline double now() {  // seconds since an arbitrary start
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace shale

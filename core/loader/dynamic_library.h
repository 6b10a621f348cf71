// Boost.DLL, used here only: opens a file by absolute path with rtld_now | rtld_local and keeps it open until the
// process ends, because code and data of a library are in use wherever its tables went.
#pragma once

#include <cstddef>
#include <string>

namespace shale {

// Opening a file again gives the same library.
class DynamicLibrary {
 public:
  // Error{config} "<path>: cannot be loaded: <the system loader's text>: <hint>".
  DynamicLibrary(const std::string& path, const std::string& hint);
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  // An exported function, or null.
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;
  alignas(void*) std::byte library_[sizeof(void*)];  // a boost::dll::shared_library that is never destroyed
};

}  // namespace shale

#define BOOST_DLL_USE_STD_FS
#include "core/loader/dynamic_library.h"

#include <new>

#include <boost/dll/shared_library.hpp>

#include "core/base/error.h"

namespace shale {
namespace {

using Library = boost::dll::shared_library;

// Boost's message is "...load() failed (dlerror system message: TEXT): Bad file descriptor".
std::string dlerror_text(const std::string& what) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const auto begin = what.find(kBefore);
  const auto end = what.rfind("): ");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return what;
  return what.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

}  // namespace

DynamicLibrary::DynamicLibrary(const std::string& path, const std::string& hint) {
  static_assert(sizeof(Library) <= sizeof library_ && alignof(Library) <= alignof(void*));
  try {
    new (library_) Library(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& e) {
    fail(Code::config, path, ": cannot be loaded: ", dlerror_text(e.what()), ": ", hint);
  } catch (...) {  // a constructor of the library threw something of its own
    fail(Code::config, path, ": cannot be loaded: it threw an exception while being loaded: ", hint);
  }
}

void* DynamicLibrary::address(const char* name) const {
  const auto& library = *std::launder(reinterpret_cast<const Library*>(library_));
  return library.has(name) ? &library.get<unsigned char>(name) : nullptr;
}

}  // namespace shale

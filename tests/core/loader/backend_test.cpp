#include "core/loader/backend.h"

#include "support.h"

namespace shale {
namespace {

using test::expect_error;
using test::TempFolder;

TEST(Backend, CpuNeedsNoLibrary) { EXPECT_TRUE(open_device("cpu", 0, "/nowhere")->torch().is_cpu()); }

TEST(Backend, ALibraryThatIsNotThere) {
  expect_error(Code::config, {"training.device is \"cuda\"", "/nowhere/libshale_cuda.so", "is not there", "\"cpu\""},
               [] { open_device("cuda", 0, "/nowhere"); });
}

TEST(Backend, ALibraryThatCannotBeLoaded) {
  const TempFolder folder;
  const std::string path = folder.copy(test::bad("unresolved"), kCudaLibrary);
  expect_error(Code::config, {path, "cannot be loaded", "undefined symbol: symbol_that_nobody_has", "NVIDIA driver"},
               [&] { open_device("cuda", 0, folder.path()); });
}

TEST(Backend, ALibraryOfAnotherBuild) {
  const TempFolder folder;
  const std::string path = folder.copy(test::bad("good"), kCudaLibrary);
  expect_error(Code::config, {path, "of another build"}, [&] { open_device("cuda", 0, folder.path()); });
}

}  // namespace
}  // namespace shale

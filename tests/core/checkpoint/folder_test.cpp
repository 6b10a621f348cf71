#include "core/checkpoint/folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "support.h"

namespace shale::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void append(File& file, const std::string& text) { file.append(std::as_bytes(std::span(text))); }

std::string error_of(const std::function<void()>& job, Code code) {
  try {
    job();
  } catch (const Error& bad) {
    EXPECT_EQ(bad.code(), code) << bad.what();
    EXPECT_EQ(std::string(bad.what()).find('\n'), std::string::npos);
    return bad.what();
  }
  return "no error";
}

TEST(Folder, HashesSmallAndLargeWrites) {
  const TempFolder temp;
  const auto folder = Folder::for_writing(temp.path());
  std::string all;
  {
    const auto file = folder->create("a");
    for (const std::size_t n : {1u, 3u, 1000u, 1u << 20, 7u, 9u << 20, 0u, 5u}) {
      const std::string text(n, static_cast<char>('a' + n % 23));
      append(*file, text);
      all += text;
    }
    EXPECT_EQ(file->size(), all.size());
  }
  const auto written = folder->sync();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].bytes, all.size());
  EXPECT_EQ(written[0].hash, hash_text(all));
  EXPECT_EQ(read_file(temp / "a"), all);
  EXPECT_EQ(folder->sync()[0].hash, hash_text(all));  // again
}

TEST(Folder, ReservedFilesAreCutToWhatWasWritten) {
  const TempFolder temp;
  const auto folder = Folder::for_writing(temp.path());
  for (const std::size_t n : {0u, 10u, 5000u}) {
    const auto file = folder->create(str("f", n));
    file->reserve(4096);
    append(*file, std::string(n, 'x'));
  }
  for (const FileEntry& file : folder->sync())
    EXPECT_EQ(std::filesystem::file_size(temp / file.name), file.bytes) << file.name;
}

TEST(Folder, NamesThatLeaveTheFolderAreRefused) {
  const TempFolder temp;
  const auto writing = Folder::for_writing(temp.path()), reading = Folder::for_reading(temp.path());
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/etc/passwd"),
        std::string("a/b"), std::string("a\0b", 3), std::string("a\nb"), std::string(256, 'n')}) {
    EXPECT_THAT(error_of([&] { writing->create(name); }, Code::checkpoint), HasSubstr("no plain file name"));
    EXPECT_THAT(error_of([&] { reading->open(name); }, Code::checkpoint), HasSubstr("no plain file name"));
    EXPECT_THAT(error_of([&] { writing->rename("a", name); }, Code::checkpoint), HasSubstr("no plain file name"));
  }
}

TEST(Folder, NothingIsOverwritten) {
  const TempFolder temp;
  write_file(temp / "a", "old");
  std::filesystem::create_symlink(temp / "elsewhere", temp / "link");
  const auto folder = Folder::for_writing(temp.path());
  EXPECT_THAT(error_of([&] { folder->create("a"); }, Code::io), HasSubstr("File exists"));
  EXPECT_THAT(error_of([&] { folder->create("link"); }, Code::io), HasSubstr("File exists"));
  append(*folder->create("b"), "new");
  EXPECT_THAT(error_of([&] { folder->rename("b", "a"); }, Code::io), HasSubstr("exists"));
  EXPECT_EQ(read_file(temp / "a"), "old");
  EXPECT_FALSE(std::filesystem::exists(temp / "elsewhere"));
}

TEST(Folder, RenamesAndAdoptedFilesAreInTheList) {
  const TempFolder temp;
  write_file(temp / "theirs", "abc");
  const auto folder = Folder::for_writing(temp.path());
  append(*folder->create("mine"), "x");
  folder->adopt(std::vector<FileEntry>{{"theirs", 3, hash_text("abc")}});
  folder->rename("mine", "ours");
  folder->rename("theirs", "all");
  std::vector<std::string> names;
  for (const FileEntry& file : folder->sync()) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("all", "ours"));
  EXPECT_THAT(folder->list(), ElementsAre("all", "ours"));
}

TEST(Folder, ReadsStayInsideTheFile) {
  const TempFolder temp;
  write_file(temp / "a", "0123456789");
  const auto file = Folder::for_reading(temp.path())->open("a");
  std::array<std::byte, 4> to{};
  file->read(6, to);
  EXPECT_EQ(to[3], std::byte{'9'});
  for (const std::uint64_t offset :
       {std::uint64_t{7}, std::uint64_t{10}, std::uint64_t{11}, ~std::uint64_t{0}, ~std::uint64_t{2}})
    EXPECT_THAT(error_of([&] { file->read(offset, to); }, Code::checkpoint), HasSubstr("outside the file of 10 bytes"));
  write_file(temp / "a", "012");  // shorter under our hands
  EXPECT_THAT(error_of([&] { file->read(0, to); }, Code::checkpoint), HasSubstr("became shorter"));
}

TEST(Folder, OnlyRegularFilesAreOpened) {
  const TempFolder temp;
  ASSERT_EQ(::mkfifo((temp / "fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(temp / "folder");
  const auto folder = Folder::for_reading(temp.path());
  EXPECT_THAT(error_of([&] { folder->open("fifo"); }, Code::checkpoint), HasSubstr("no regular file"));
  EXPECT_THAT(error_of([&] { folder->open("folder"); }, Code::checkpoint), HasSubstr("no regular file"));
  EXPECT_THAT(error_of([&] { folder->open("none"); }, Code::checkpoint), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { Folder::for_reading(temp / "none"); }, Code::checkpoint), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { Folder::for_writing(temp / "none"); }, Code::io), HasSubstr("No such file"));
}

// Runs job in a child that may not write files longer than `bytes`; what it writes to stdout is not kept.
int in_child_with_limit(std::uint64_t bytes, const std::function<void()>& job) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    job();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Folder, AWriteThatFailsIsAnErrorNowOrAtSync) {
  const TempFolder temp;
  EXPECT_EQ(in_child_with_limit(
                1 << 20,
                [&] {
                  const auto folder = Folder::for_writing(temp.path());
                  const auto large = folder->create("large");
                  EXPECT_THAT(error_of([&] { append(*large, std::string(3 << 20, 'x')); }, Code::io),
                              HasSubstr("File too large"));
                  EXPECT_THAT(error_of([&] { append(*large, "y"); }, Code::io), HasSubstr("earlier write failed"));
                  EXPECT_THAT(error_of([&] { folder->sync(); }, Code::io), HasSubstr("large: an earlier write failed"));
                }),
            0);
  EXPECT_EQ(in_child_with_limit(1000,
                                [&] {
                                  const auto folder = Folder::for_writing(temp.path());
                                  append(*folder->create("small"), std::string(2000, 'x'));  // still in the buffer
                                  EXPECT_THAT(error_of([&] { folder->sync(); }, Code::io),
                                              HasSubstr("small: cannot be written: File too large"));
                                  EXPECT_THAT(error_of([&] { folder->create("r")->reserve(5000); }, Code::io),
                                              HasSubstr("no room for 5000 bytes"));
                                }),
            0);
}

TEST(Folder, AFullDiskIsNamed) {
  const TempFolder temp;
  if (::mount("tmpfs", temp.path().c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "mount is not allowed here";
  {
    const auto folder = Folder::for_writing(temp.path());
    EXPECT_THAT(error_of([&] { folder->create("r")->reserve(8 << 20); }, Code::io), HasSubstr("free space"));
    EXPECT_THAT(error_of([&] { append(*folder->create("a"), std::string(8 << 20, 'x')); }, Code::io),
                HasSubstr("a: cannot be written: No space left on device; free space"));
  }
  ::umount(temp.path().c_str());
}

}  // namespace
}  // namespace shale::test

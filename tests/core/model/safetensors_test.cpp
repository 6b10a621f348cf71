#include "core/model/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/model/folders.h"

namespace shale::test {
namespace {

using ::testing::HasSubstr;

StoredTensors read(const std::string& bytes) {
  TempFolder folder;
  return read_safetensors_header(InputFile(folder.write("model.safetensors", bytes)));
}

std::string refusal(const std::string& bytes) {
  const std::string text = error_of(Code::input, [&] { read(bytes); });
  EXPECT_THAT(text, HasSubstr("/model.safetensors"));
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape + ", \"data_offsets\": " + offsets +
         "}";
}

// One tensor described by the entry, and as many bytes of data.
std::string one(const std::string& text, std::size_t bytes) {
  return safetensors("{" + text + "}", std::string(bytes, '\1'));
}

TEST(Safetensors, ReadsWhatIsValid) {
  const auto tensors =
      read(safetensors("{\"__metadata__\": {\"format\": \"pt\"}, " + entry("b", "F32", "[2, 3]", "[4, 28]") + ", " +
                           entry("a", "BF16", "[2]", "[0, 4]") + ", " + entry("scalar", "F64", "[]", "[28, 36]") +
                           ", " + entry("empty", "I8", "[0, 7]", "[36, 36]") + "}   \n",
                       std::string(36, 'x')));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("b").shape, (Shape{2, 3}));
  EXPECT_EQ(tensors.at("b").end - tensors.at("b").begin, 24u);
  EXPECT_EQ(tensors.at("a").begin + 4, tensors.at("b").begin);
  EXPECT_EQ(tensors.at("scalar").dtype, "F64");
  EXPECT_TRUE(tensors.at("scalar").shape.empty());
  EXPECT_EQ(tensors.at("empty").begin, tensors.at("empty").end);
  EXPECT_TRUE(read(safetensors("{}", "")).empty());
  EXPECT_EQ(read(safetensors("{\"__metadata__\": null, " + entry("x", "F4", "[4]", "[0, 2]") + "}", "ab")).size(), 1u);
}

// C1: what a download may leave in place of a weights file.
TEST(Safetensors, C1NamesFileAndSizeAndGuessesWhatItIs) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 268435456\n";
  EXPECT_THAT(refusal(pointer), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal("<!DOCTYPE html><html>not found</html>"), HasSubstr("web page"));
  EXPECT_THAT(refusal("PK\3\4 a zip archive of PyTorch"), HasSubstr("pickle"));
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(safetensors("{}", "", 1ull << 40)), HasSubstr("header of 1099511627776 bytes; the file has 10"));
  EXPECT_THAT(refusal(safetensors("{}", "", 3)), HasSubstr("header of 3 bytes; the file has 10 bytes"));
  EXPECT_THAT(refusal(safetensors("{}", "", ~0ull)), HasSubstr("header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(safetensors("{}", "", 0)), HasSubstr("header of 0 bytes"));
}

// C31: a file that is shorter or longer than its header promises, or whose tensors do not lie back to back.
TEST(Safetensors, C31ChecksTheWholeLayoutAtOpen) {
  const std::string two = entry("a", "F32", "[4]", "[0, 16]") + ", " + entry("b", "F32", "[2, 2]", "[16, 32]");
  EXPECT_NO_THROW(read(one(two, 32)));
  EXPECT_THAT(refusal(one(two, 31)), HasSubstr("tensor \"b\" ends at byte 32 of the data, but the file holds 31"));
  EXPECT_THAT(refusal(one(two, 16)), HasSubstr("cut short"));
  EXPECT_THAT(refusal(one(two, 0)), HasSubstr("tensor \"a\" ends at byte 16"));
  EXPECT_THAT(refusal(one(two, 48)), HasSubstr("16 bytes follow the last tensor"));
  EXPECT_THAT(refusal(one(entry("a", "F32", "[4]", "[0, 16]") + ", " + entry("b", "F32", "[4]", "[8, 24]"), 24)),
              HasSubstr("tensor \"b\" begins at byte 8 of the data, where it overlaps"));
  EXPECT_THAT(refusal(one(entry("a", "F32", "[4]", "[0, 16]") + ", " + entry("b", "F32", "[4]", "[0, 16]"), 16)),
              HasSubstr("overlaps"));
  EXPECT_THAT(refusal(one(entry("a", "F32", "[4]", "[0, 16]") + ", " + entry("b", "F32", "[2]", "[20, 28]"), 28)),
              HasSubstr("tensor \"b\" begins at byte 20 of the data, where a gap follows"));
  EXPECT_THAT(refusal(one(entry("a", "F32", "[4]", "[8, 24]"), 24)), HasSubstr("a gap"));
  EXPECT_THAT(refusal(one(entry("a", "F32", "[5]", "[0, 16]"), 16)),
              HasSubstr("tensor \"a\": F32 [5] takes 20 bytes, but data_offsets [0,16] span 16"));
}

TEST(Safetensors, RefusesDamagedEntries) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {entry("a", "f32", "[4]", "[0, 16]"), "dtype \"f32\" is not known"},
      {entry("a", "F32X", "[4]", "[0, 16]"), "is not known"},
      {entry("a", "F32", "[-4]", "[0, 16]"), "shape is [-4]"},
      {entry("a", "F32", "[4.0]", "[0, 16]"), "shape is [4.0]"},
      {entry("a", "F32", "4", "[0, 16]"), "shape is 4"},
      {entry("a", "F32", "[4]", "[0, 8, 16]"), "expected [begin, end]"},
      {entry("a", "F32", "[4]", "[16, 0]"), "expected [begin, end]"},
      {entry("a", "F32", "[4]", "[0, \"16\"]"), "expected whole numbers"},
      {entry("a", "F32", "[4611686018427387904, 4]", "[0, 16]"), "larger than any file"},
      {entry("a", "F32", "[4611686018427387904, 4, 0]", "[0, 0]"), "larger than any file"},
      {entry("a", "F32", "[0, 9223372036854775808, 2]", "[0, 0]"), "expected whole numbers"},
      {entry("a", "F32", "[4]", "[0, 99999999999999999999]"), "expected whole numbers"},
      {entry("a", "F32", "[4]", "[9223372036854775800, 9223372036854775807]"), "span 7"},
      {entry("a", "F4", "[3]", "[0, 2]"), "whole byte"},
      {R"("a": {"dtype": 1, "shape": [4], "data_offsets": [0, 16]})", "dtype is 1"},
      {R"("a": {"shape": [4], "data_offsets": [0, 16]})", "has no dtype"},
      {R"("a": {"dtype": "F32", "data_offsets": [0, 16]})", "has no shape"},
      {R"("a": {"dtype": "F32", "shape": [4]})", "has no data_offsets"},
      {R"("a": [1])", "expected an object"},
      {R"("a": {"dtype": "F32", "dtype": "F32", "shape": [4], "data_offsets": [0, 16]})", "appears twice"},
      {entry("a", "F32", "[4]", "[0, 16]") + ", " + entry("a", "F32", "[4]", "[0, 16]"), "\"a\" appears twice"},
      {R"("__metadata__": {"format": 1})", "__metadata__"},
      {R"("__metadata__": ["pt"])", "__metadata__"},
      {R"("__metadata__": "pt")", "__metadata__"},
  };
  for (const auto& [text, message] : bad) EXPECT_THAT(refusal(one(text, 16)), HasSubstr(message)) << text;
}

TEST(Safetensors, RefusesHeadersThatAreNoJson) {
  EXPECT_THAT(refusal(safetensors("[]", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal(safetensors(" {}", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal(safetensors("\xef\xbb\xbf{}", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal(safetensors("{\"a\": NaN}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(safetensors(std::string("{}\0", 3), "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(safetensors("{\"\xc3\x28\": 1}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(safetensors("{\"a\": " + std::string(1 << 20, '['), "")), HasSubstr("nested deeper"));
}

TEST(Safetensors, NamesAreShownWithoutControlCharacters) {
  const std::string text = refusal(one(entry("a\\n\\u0000../x", "F99", "[4]", "[0, 16]"), 16));
  EXPECT_THAT(text, HasSubstr(R"(tensor "a\n\u0000../x")"));
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  TempFolder folder;
  EXPECT_THAT(error_of(Code::input, [&] { InputFile(folder.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of(Code::input, [&] { InputFile(folder.path() + "/none"); }), HasSubstr("No such file"));
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(Code::input, [&] { InputFile{pipe}; }), HasSubstr("not a regular file"));
}

TEST(InputFile, AFileCutWhileOpenIsAnErrorAndNoSignal) {
  TempFolder folder;
  const InputFile file(folder.write("data", std::string(1 << 16, 'x')));
  ASSERT_EQ(::truncate(file.path().c_str(), 100), 0);
  std::string to(1 << 16, '\0');
  EXPECT_THAT(error_of(Code::input, [&] { file.read(0, to.data(), to.size()); }), HasSubstr("ends at byte 100"));
}

TEST(InputFile, TextIsBounded) {
  TempFolder folder;
  const InputFile file(folder.write("data", "12345"));
  EXPECT_EQ(file.text(5), "12345");
  EXPECT_THAT(error_of(Code::input, [&] { file.text(4); }), HasSubstr("5 bytes; at most 4"));
}

}  // namespace
}  // namespace shale::test

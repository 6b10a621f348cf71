#include "core/data/source.h"

#include <algorithm>
#include <random>

#include <sys/stat.h>

#include "tests/core/data/token_files.h"

namespace shale {
namespace {

using testing::HasSubstr;
using SourceTest = TokenFiles;

TEST_F(SourceTest, TextIsItsBytes) {
  const std::string text("a\r\n\xEF\xBB\xBF\xC3\xA4\0z", 9);
  const auto source = open_tokens(write("a.txt", text), TokenFormat::text, log_);
  ASSERT_EQ(source->size(), 9);
  const auto ids = all_ids(*source);
  for (std::size_t i = 0; i < text.size(); ++i) EXPECT_EQ(ids[i], static_cast<unsigned char>(text[i]));
  EXPECT_EQ(source->largest(), 0xEF);
  EXPECT_EQ(source->bound(), 255);  // one byte, whatever occurs
}

TEST_F(SourceTest, LineEndsAndMarksAreTokensC29) {
  for (const std::string text : {"x\ny\n", "x\r\ny\r\n", "\xEF\xBB\xBFx\ny\n", "x\ry\r"}) {
    EXPECT_EQ(open_tokens(write("t", text), TokenFormat::text, log_)->size(), static_cast<std::int64_t>(text.size()));
  }
  EXPECT_THAT(error(write("t", std::string("\xFF\xFEx\0", 4)), TokenFormat::text), HasSubstr("UTF-16"));
  EXPECT_THAT(error(write("t", std::string("\xFE\xFF\0x", 4)), TokenFormat::detect), HasSubstr("UTF-16"));
  EXPECT_THAT(error(write("t", std::string("h\0e\0y\0!\0", 8)), TokenFormat::text), HasSubstr("UTF-16"));
}

TEST_F(SourceTest, AGitLfsPointerIsNoDataC1) {
  const std::string pointer = write("t", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  for (const auto format : {TokenFormat::text, TokenFormat::nanogpt, TokenFormat::llmc, TokenFormat::detect}) {
    EXPECT_THAT(error(pointer, format), HasSubstr("Git LFS pointer"));
  }
}

TEST_F(SourceTest, AllFormatsGiveTheSameIdsC26) {
  const auto ids = made_ids(4097);
  const std::string narrow = bytes_of<std::uint16_t>(ids), wide = bytes_of<std::uint32_t>(ids);
  const std::string nanogpt = write("n.bin", narrow);
  const std::string gpt2 = write("g.bin", llmc_header(20240520, 1, 4097) + narrow);
  const std::string llama = write("l.bin", llmc_header(20240801, 7, 4097) + wide);
  for (const auto& [path, format] : {std::pair{nanogpt, TokenFormat::nanogpt}, std::pair{gpt2, TokenFormat::llmc},
                                     std::pair{llama, TokenFormat::llmc}}) {
    for (const TokenFormat asked : {format, TokenFormat::detect}) {
      const auto source = open_tokens(path, asked, log_);
      EXPECT_EQ(all_ids(*source), ids) << path;
      EXPECT_EQ(source->largest(), std::ranges::max(ids));
    }
  }
}

TEST_F(SourceTest, WideIdsSurvive) {
  const std::vector<std::int64_t> ids{0, 65535, 65536, 128255, 4294967295};
  const auto source =
      open_tokens(write("w.bin", llmc_header(20240801, 7, 5) + bytes_of<std::uint32_t>(ids)), TokenFormat::llmc, log_);
  EXPECT_EQ(all_ids(*source), ids);
  EXPECT_EQ(source->largest(), 4294967295);
  EXPECT_EQ(source->bound(), 4294967295);
}

TEST_F(SourceTest, BrokenFilesNameFoundAndExpectedC26) {
  const std::string body = bytes_of<std::uint16_t>(made_ids(100));
  const auto llmc = [&](const std::string& bytes) { return error(write("x.bin", bytes), TokenFormat::llmc); };
  EXPECT_THAT(llmc(llmc_header(20240521, 1, 100) + body), HasSubstr("x.bin: has magic 20240521, expected 20240520"));
  EXPECT_THAT(llmc(llmc_header(20240520, 7, 100) + body), HasSubstr("has version 7, expected version 1"));
  EXPECT_THAT(llmc(llmc_header(20240801, 1, 100) + body), HasSubstr("has version 1, expected version 7"));
  EXPECT_THAT(llmc(llmc_header(20240520, 1, 101) + body),
              HasSubstr("has 1224 bytes, expected 1226 for the 101 tokens"));
  EXPECT_THAT(llmc(llmc_header(20240520, 1, 99) + body), HasSubstr("has 1224 bytes, expected 1222"));
  EXPECT_THAT(llmc(llmc_header(20240520, 1, 100) + body + "x"), HasSubstr("has 1225 bytes, expected 1224"));
  EXPECT_THAT(llmc(llmc_header(20240801, 7, 100) + body), HasSubstr("expected 1424"));
  EXPECT_THAT(llmc(llmc_header(20240520, 1, -1)), HasSubstr("for the -1 tokens"));
  EXPECT_THAT(llmc(body), HasSubstr("has 200 bytes, expected at least the 1024"));
  EXPECT_THAT(llmc(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(llmc(bytes_of<std::uint16_t>(made_ids(1000))), HasSubstr("has magic"));  // raw ids declared as llm.c's
}

TEST_F(SourceTest, RawIdsOfTheWrongKindC26) {
  EXPECT_THAT(error(write("o.bin", "abc"), TokenFormat::nanogpt), HasSubstr("has 3 bytes, expected an even number"));
  EXPECT_THAT(error(write("w.bin", bytes_of<std::uint32_t>(made_ids(100))), TokenFormat::nanogpt),
              HasSubstr("found 32-bit ids, expected 16-bit ids"));
  const std::string headed = llmc_header(20240520, 1, 1) + "ab";
  EXPECT_THAT(error(write("h.bin", headed), TokenFormat::nanogpt), HasSubstr("starts with the llm.c magic 20240520"));
  EXPECT_THAT(error(write("h.bin", headed), TokenFormat::text), HasSubstr("set dataset = \"llmc\""));
  // Zeros alone are no sign of 32-bit ids.
  EXPECT_EQ(error(write("z.bin", std::string(1000, '\0')), TokenFormat::nanogpt), "");
}

TEST_F(SourceTest, FoldersAndPatternsAreSortedAndJoined) {
  write("b.txt", "345");
  write("a.txt", "012");
  write("c.md", "678");
  write(".hidden", "x");
  std::filesystem::create_directories(folder_ / "sub");
  const auto text = [&](const std::string& path) {
    std::string out;
    for (const std::int64_t id : all_ids(*open_tokens(path, TokenFormat::text, log_))) out += static_cast<char>(id);
    return out;
  };
  EXPECT_EQ(text(folder_.string()), "012345678");
  EXPECT_EQ(text((folder_ / "*.txt").string()), "012345");
  EXPECT_EQ(text((folder_ / "[bc].*").string()), "345678");
  const auto source = open_tokens(folder_.string(), TokenFormat::text, log_);
  for (std::int64_t begin = 0; begin <= 9; ++begin) {
    for (std::int64_t n = 0; n <= 9 - begin; ++n) {
      std::vector<std::int64_t> ids(static_cast<std::size_t>(n) + 1, -1);
      source->copy(begin, n, ids.data());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(ids[static_cast<std::size_t>(i)], '0' + begin + i);
      ASSERT_EQ(ids.back(), -1);
    }
  }
  std::vector<std::int64_t> ids(20);
  EXPECT_THROW(source->copy(5, 5, ids.data()), Error);
  EXPECT_THROW(source->copy(-1, 1, ids.data()), Error);
  EXPECT_THROW(source->copy(0, -1, ids.data()), Error);
}

TEST_F(SourceTest, EmptyShardsAreSkippedWithAWarningC26) {
  write("0.bin", llmc_header(20240520, 1, 2) + "abcd");
  write("1.bin", llmc_header(20240520, 1, 0));
  write("2.bin", llmc_header(20240520, 1, 1) + "ef");
  testing::internal::CaptureStderr();
  const auto source = open_tokens(folder_.string(), TokenFormat::llmc, log_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1.bin: holds 0 tokens and is skipped"));
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(all_ids(*source)[2], 'e' + 256 * 'f');
}

TEST_F(SourceTest, NothingToReadIsAnErrorC26) {
  EXPECT_THAT(error((folder_ / "*.bin").string(), TokenFormat::llmc), HasSubstr("the pattern matches no file"));
  EXPECT_THAT(error((folder_ / "nowhere").string(), TokenFormat::text), HasSubstr("no such file or folder"));
  EXPECT_THAT(error(folder_.string(), TokenFormat::text), HasSubstr("the folder holds no file"));
  EXPECT_THAT(error("", TokenFormat::text), HasSubstr("dataset_path is empty"));
  EXPECT_THAT(error("/dev/zero", TokenFormat::text), HasSubstr("is no regular file"));
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error(pipe, TokenFormat::text), HasSubstr("is no regular file"));  // and does not wait for a writer
}

TEST_F(SourceTest, FormatsDoNotMix) {
  write("a.bin", bytes_of<std::uint16_t>(made_ids(10)));
  write("b.txt", "text");
  EXPECT_THAT(error(folder_.string(), TokenFormat::detect), HasSubstr("b.txt: is of another format than"));
}

// Random headers and sizes: ends in ids that are all readable, or in Error{input}.
TEST_F(SourceTest, FuzzTheReader) {
  std::mt19937_64 random(7);
  const std::string good16 = llmc_header(20240520, 1, 40) + bytes_of<std::uint16_t>(made_ids(40));
  const std::string good32 = llmc_header(20240801, 7, 40) + bytes_of<std::uint32_t>(made_ids(40));
  const Log quiet(1);  // of another rank: no warnings
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = random() % 2 != 0 ? good16 : good32;
    for (std::uint64_t n = random() % 4; n > 0; --n) {
      const std::size_t at = random() % 3 != 0 ? random() % 12 : random() % bytes.size();
      bytes[at] = static_cast<char>(random());
    }
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 8));
    const auto format = static_cast<TokenFormat>(random() % 4);
    const std::string path = write("f.bin", bytes);
    try {
      const auto source = open_tokens(path, format, quiet);
      const auto ids = all_ids(*source);
      for (const std::int64_t id : ids) ASSERT_LE(id, source->largest());
      ++opened;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::input) << error.what();
    }
  }
  EXPECT_GT(opened, 300);
  EXPECT_LT(opened, 2900);
}

}  // namespace
}  // namespace shale

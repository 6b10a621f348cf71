// Token files for one test.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/data/source.h"

namespace shale {

template <class Id>
std::string bytes_of(const std::vector<std::int64_t>& ids) {
  std::string out;
  for (const std::int64_t id : ids) {
    const Id narrow = static_cast<Id>(id);
    out.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  return out;
}

inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int64_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  return bytes_of<std::int32_t>(words);
}

inline std::vector<std::int64_t> made_ids(std::int64_t n) {  // the shared fixture: (i*i + 3*i) mod 97
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back((i * i + 3 * i) % 97);
  return out;
}

inline std::vector<std::int64_t> all_ids(const TokenSource& source) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), out.data());
  return out;
}

class TokenFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / str("shale_data_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / name).string();
    std::filesystem::remove(path);  // overwriting in place waits for the disk on some file systems
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // The message of the Error{input}; "" when there is none.
  std::string error(const std::string& path, TokenFormat format) const {
    try {
      open_tokens(path, format, log_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::input) << error.what();
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
  Log log_;
};

}  // namespace shale

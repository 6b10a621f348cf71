#include "core/comm/error_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace shale {
namespace {

nlohmann::json written(const Error& error) {
  const auto path = std::filesystem::path(testing::TempDir()) / "error.json";
  write_error_file(path.string(), error, 3);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return nlohmann::json::parse(text.str());
}

TEST(ErrorFile, IsWhatTheAgentReads) {
  const auto reason = written(Error(Code::io, "cannot write \"a\\b\"\n"));
  EXPECT_EQ(reason["message"]["message"], "[rank 3] E-io: cannot write \"a\\b\"\n");
  EXPECT_GT(std::stoll(reason["message"]["extraInfo"]["timestamp"].get<std::string>()), 1'600'000'000);
}

TEST(ErrorFile, AFollowUpIsLaterThanItsCause) {
  const auto second = [](const nlohmann::json& reason) {
    return std::stoll(reason["message"]["extraInfo"]["timestamp"].get<std::string>());
  };
  const auto cause = second(written(Error(Code::io, "x")));
  EXPECT_GT(second(written(Error(Code::dist, "x").mark_secondary())), cause);
}

TEST(ErrorFile, BytesThatAreNoTextAreReplaced) {
  EXPECT_NE(written(Error(Code::input, "file \xff\xfe"))["message"]["message"].get<std::string>().find("file "),
            std::string::npos);
}

TEST(ErrorFile, NoPathOrABadOneIsNoFailure) {
  write_error_file("", Error(Code::io, "x"), 0);
  write_error_file("/no/such/folder/error.json", Error(Code::io, "x"), 0);
}

}  // namespace
}  // namespace shale

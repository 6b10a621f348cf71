// A TOML file for one test, and what read_config says about it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/config/config.h"

namespace shale {

class ConfigFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / str("shale_config_", getpid());
    std::filesystem::create_directories(folder_);
    file_ = (folder_ / "run.toml").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) const {
    std::filesystem::remove(file_);  // overwriting in place waits for the disk on some file systems
    std::ofstream(file_, std::ios::binary) << text;
  }

  // Every configuration must name its data: where the text does not, the environment does.
  Config read(const std::string& text, const std::vector<Override>& overrides = {}, Environment environment = {},
              int world = 0) const {
    write(text);
    if (text.find("dataset_path") == std::string::npos)
      environment.emplace("SHALE_TRAINING_DATASET_PATH", "tokens.bin");
    return read_config(file_, overrides, world, environment);
  }

  // The message of the Error{config}, with the file's folder taken away; "" when there is none.
  std::string error(const std::string& text, const std::vector<Override>& overrides = {},
                    const Environment& environment = {}, int world = 0) const {
    try {
      read(text, overrides, environment, world);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::config);
      return short_text(error.what());
    }
    return "";
  }

  std::string short_text(std::string text) const {
    const std::string prefix = folder_.string() + "/";
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix)) {
      text.erase(at, prefix.size());
    }
    return text;
  }

  std::filesystem::path folder_;
  std::string file_;
};

}  // namespace shale

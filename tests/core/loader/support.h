// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/loader/plugins.h"

namespace shale::test {

inline std::string bad(const std::string& name) { return std::string(BAD_PLUGINS) + "/" + name + ".so"; }

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(Code::internal, "");
}

inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in: " << text;
}

// The error has this code and its text is one line with these parts.
template <class F>
void expect_error(Code code, const std::vector<std::string>& parts, F&& f) {
  const Error e = error_of(f);
  EXPECT_EQ(e.code(), code) << e.what();
  expect_contains(e.what(), parts);
  EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "shale-loader-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = std::filesystem::canonical(name).string();
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
    return path_ + "/" + name;
  }
  std::string copy(const std::string& from, const std::string& name) const {
    std::filesystem::copy_file(from, path_ + "/" + name, std::filesystem::copy_options::overwrite_existing);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// An embedding with its weight also used by the head, two layers, a norm.
inline ModelInfo small_model() {
  ModelInfo m;
  m.units.push_back({"embedding", UnitKind::embedding, {{"embed.weight", {10, 4}, kEmbedding, false}}, {}});
  for (const char* name : {"layers.0", "layers.1"})
    m.units.push_back(
        {name,
         UnitKind::layer,
         {{std::string(name) + ".weight", {4, 4}, kLinear, false}, {std::string(name) + ".norm", {4}, kNorm, true}},
         {}});
  m.units.push_back({"head", UnitKind::head, {{"norm.weight", {4}, kNorm, false}}, {"embed.weight"}});
  return m;
}

inline Topology topology_of(int world, int per_node) {
  Topology t;
  t.world = world;
  t.node_of_rank.clear();
  for (int r = 0; r < world; ++r) t.node_of_rank.push_back(static_cast<std::uint32_t>(r / per_node));
  return t;
}

// A configuration whose four choices are good; errors of a choice begin with "run.toml:<line>:<column>".
inline Config good_config() {
  Config c;
  c.file = "/configs/run.toml";
  c.hash = "cafe";
  c.sharding = {"sharding", bad("base"), {"run.toml:2:10"}, {}};
  c.precision = {"precision", bad("base"), {"run.toml:5:10"}, {}};
  c.offload = {"offload", bad("base"), {"run.toml:8:10"}, {}};
  c.format = {"checkpoint", bad("base"), {"run.toml:11:10"}, {}};
  return c;
}

inline RawOption option(const std::string& key, RawValue value) {
  return {key, std::move(value), {"run.toml:12:1"}, {"run.toml:12:9"}};
}

inline Config with_sharding(const std::string& plugin, std::vector<RawOption> options = {}) {
  Config c = good_config();
  c.sharding.plugin = bad(plugin);
  c.sharding.options = std::move(options);
  return c;
}

inline std::unique_ptr<Plugins> load(const Config& c, const PluginPaths& paths = {}) {
  static const Log log(1);
  return load_plugins(c, paths, log);
}

}  // namespace shale::test

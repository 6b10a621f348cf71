#include <algorithm>
#include <filesystem>

#include <glob.h>

#include "core/base/error.h"
#include "core/data/token_file.h"

namespace shale {
namespace {

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) fail(Code::input, folder, ": cannot be listed: ", error.message());
  for (const std::filesystem::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') && entry.is_regular_file(error)) out.push_back(entry.path().string());
  }
  return out;
}

std::vector<std::string> matches(const std::string& pattern) {
  struct Found {
    glob_t list{};
    ~Found() { globfree(&list); }
  } found;
  std::vector<std::string> out;
  const int result = glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found.list);
  if (result != 0 && result != GLOB_NOMATCH) fail(Code::input, pattern, ": a folder of the pattern cannot be listed");
  for (std::size_t i = 0; result == 0 && i < found.list.gl_pathc; ++i) {
    std::error_code error;
    if (std::filesystem::is_regular_file(found.list.gl_pathv[i], error)) out.emplace_back(found.list.gl_pathv[i]);
  }
  return out;
}

}  // namespace

std::vector<std::string> token_files(const std::string& path) {
  if (path.empty()) fail(Code::input, "no data: dataset_path is empty; set it to a file, a folder or a pattern");
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  std::vector<std::string> out;
  if (std::filesystem::is_directory(status)) {
    out = files_in(path);
    if (out.empty()) fail(Code::input, path, ": the folder holds no file, expected token or text files");
  } else if (std::filesystem::exists(status)) {
    out = {path};
  } else if (path.find_first_of("*?[") != std::string::npos) {
    out = matches(path);
    if (out.empty()) fail(Code::input, path, ": the pattern matches no file, expected at least one");
  } else {
    fail(Code::input, path, ": no such file or folder");
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace shale

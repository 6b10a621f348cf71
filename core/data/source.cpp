#include "core/data/source.h"

#include <algorithm>
#include <mutex>

#include "core/base/error.h"
#include "core/data/token_file.h"

namespace shale {
namespace {

// Files one after the other.
class JoinedFiles final : public TokenSource {
 public:
  JoinedFiles(std::string name, std::vector<TokenFile> files) : name_(std::move(name)), files_(std::move(files)) {
    for (const TokenFile& file : files_) {
      begins_.push_back(size_);
      size_ += file.tokens;
    }
  }

  std::int64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const override {
    check(begin >= 0 && n >= 0 && begin <= size_ && n <= size_ - begin, name_, ": tokens ", begin, " to ", begin + n,
          " asked of ", size_);
    const auto after = std::ranges::upper_bound(begins_, begin);
    for (std::size_t i = static_cast<std::size_t>(after - begins_.begin()) - 1; n > 0; ++i) {
      const std::int64_t in_file = begin - begins_[i];
      const std::int64_t part = std::min(n, files_[i].tokens - in_file);
      files_[i].copy(in_file, part, to);
      begin += part;
      to += part;
      n -= part;
    }
  }

  std::int64_t bound() const override {
    std::int64_t most = 0;
    for (const TokenFile& file : files_) most = std::max(most, (std::int64_t{1} << 8 * file.width) - 1);
    return most;
  }

  std::int64_t largest() const override {
    std::call_once(scanned_, [this] {
      for (const TokenFile& file : files_) largest_ = std::max(largest_, file.largest());
    });
    return largest_;
  }

 private:
  std::string name_;
  std::vector<TokenFile> files_;  // none is empty
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
  mutable std::once_flag scanned_;
  mutable std::int64_t largest_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path, TokenFormat format, const Log& log) {
  std::vector<TokenFile> files;
  std::string first;
  TokenFormat kind = format;
  for (const std::string& name : token_files(path)) {
    TokenFile file = open_token_file(name, format);
    if (file.tokens == 0) {
      log.warning(name + ": holds 0 tokens and is skipped");
      continue;
    }
    if (first.empty()) {
      first = name;
      kind = file.format;
    }
    if (file.format != kind) {
      fail(Code::input, name, ": is of another format than ", first, "; name the format, or keep one in a folder");
    }
    files.push_back(std::move(file));
  }
  return std::make_unique<JoinedFiles>(path, std::move(files));
}

}  // namespace shale

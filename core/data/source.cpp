#include "core/data/source.h"

#include <algorithm>
#include <mutex>

#include "core/base/error.h"
#include "core/data/shard.h"

namespace shale {
namespace {

// Shards one after the other.
class JoinedShards final : public TokenSource {
 public:
  JoinedShards(std::string name, std::vector<Shard> shards) : name_(std::move(name)), shards_(std::move(shards)) {
    for (const Shard& shard : shards_) {
      begins_.push_back(size_);
      size_ += shard.tokens;
    }
  }

  std::int64_t size() const override { return size_; }
  std::string name() const override { return name_; }

  void copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const override {
    check(begin >= 0 && n >= 0 && begin <= size_ && n <= size_ - begin, name_, ": tokens ", begin, " to ", begin + n,
          " asked of ", size_);
    const auto after = std::ranges::upper_bound(begins_, begin);
    for (std::size_t i = static_cast<std::size_t>(after - begins_.begin()) - 1; n > 0; ++i) {
      const std::int64_t in_shard = begin - begins_[i];
      const std::int64_t part = std::min(n, shards_[i].tokens - in_shard);
      shards_[i].copy(in_shard, part, to);
      begin += part;
      to += part;
      n -= part;
    }
  }

  std::int64_t largest() const override {
    std::call_once(scanned_, [this] {
      for (const Shard& shard : shards_) largest_ = std::max(largest_, shard.largest());
    });
    return largest_;
  }

 private:
  std::string name_;
  std::vector<Shard> shards_;  // none is empty
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
  mutable std::once_flag scanned_;
  mutable std::int64_t largest_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path, TokenFormat format, const Log& log) {
  std::vector<Shard> shards;
  std::string first;
  TokenFormat kind = format;
  for (const std::string& file : token_files(path)) {
    Shard shard = open_shard(file, format);
    if (shard.tokens == 0) {
      log.warning(file + ": holds 0 tokens and is skipped");
      continue;
    }
    if (first.empty()) {
      first = file;
      kind = shard.format;
    }
    if (shard.format != kind) {
      fail(Code::input, file, ": is of another format than ", first, "; name the format, or keep one in a folder");
    }
    shards.push_back(std::move(shard));
  }
  return std::make_unique<JoinedShards>(path, std::move(shards));
}

}  // namespace shale

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/data/permutation.h"
#include "core/data/source.h"

namespace shale {
namespace {

void check_options(const SamplerOptions& o) {
  check(o.seq_len >= 1 && o.micro_batch >= 1 && o.micro_steps >= 1 && o.world >= 1, "a sampler of seq_len ", o.seq_len,
        ", micro_batch ", o.micro_batch, ", ", o.micro_steps, " micro-steps and ", o.world, " ranks");
  check(o.rank >= 0 && o.rank < o.world, "rank ", o.rank, " of ", o.world);
}

}  // namespace

Sampler::Sampler(std::shared_ptr<const TokenSource> source, SamplerOptions options, const Log& log)
    : source_(std::move(source)), options_(options) {
  check_options(options_);
  sequences_ = std::max<std::int64_t>(source_->size() - 1, 0) / options_.seq_len;
  if (sequences_ == 0) {
    fail(Code::input, source_->name(), ": found ", source_->size(), " tokens, one sequence of seq_len ",
         options_.seq_len, " needs ", options_.seq_len + 1, "; give more data or lower seq_len");
  }
  if (sequences_ < global_batch()) {
    log.warn_once(str(source_->name(), ": ", sequences_, " sequences are fewer than the ", global_batch(),
                      " of one step, so they repeat within a step"));
  }
}

std::int64_t Sampler::sequences() const { return sequences_; }

std::int64_t Sampler::global_batch() const { return options_.micro_batch * options_.micro_steps * options_.world; }

std::string Sampler::sample() const {
  constexpr std::int64_t kPlaces = 256, kTokens = 16;
  const std::int64_t n = std::min(kTokens, source_->size()), last = source_->size() - n;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(kPlaces * n));
  for (std::int64_t i = 0; i < kPlaces; ++i) source_->copy(last * i / (kPlaces - 1), n, tokens.data() + i * n);
  return hash_text({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::int64_t)});
}

std::int64_t Sampler::sequence_at(std::int64_t position) const {
  check(position >= 0, "data position ", position);
  const std::int64_t epoch = position / sequences_, place = position % sequences_;
  return options_.shuffle ? permuted(place, sequences_, options_.seed, static_cast<std::uint64_t>(epoch)) : place;
}

std::vector<Batch> Sampler::next(Cursor& cursor) const {
  const std::int64_t rows = options_.micro_batch, length = options_.seq_len;
  check(cursor.next >= 0 && cursor.next <= std::numeric_limits<std::int64_t>::max() - global_batch(), "data position ",
        cursor.next);
  std::vector<std::int64_t> window(static_cast<std::size_t>(length) + 1);
  std::vector<Batch> out;
  for (int m = 0; m < options_.micro_steps; ++m) {
    Batch batch{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong), rows * length};
    auto* tokens = batch.tokens.mutable_data_ptr<std::int64_t>();
    auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
    const std::int64_t first = cursor.next + (std::int64_t{m} * options_.world + options_.rank) * rows;
    for (std::int64_t i = 0; i < rows; ++i) {
      source_->copy(sequence_at(first + i) * length, length + 1, window.data());
      std::copy_n(window.data(), length, tokens + i * length);
      std::copy_n(window.data() + 1, length, targets + i * length);
    }
    out.push_back(std::move(batch));
  }
  cursor.next += global_batch();
  return out;
}

}  // namespace shale

// Where tokens come from, and which sequences make the batch of a step. The order of the global batch depends on
// (seed, epoch) only, never on the number of ranks; what a rank gets is a slice of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/data/batch.h"

namespace shale {

// A sequence of token ids, memory-mapped or in memory; thread-safe to read. A file that somebody cuts short while it is
// mapped ends the process (SIGBUS); nothing else about a file is trusted.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;                   // tokens
  virtual std::string name() const { return "the data"; }  // for messages
  virtual void copy(std::int64_t begin, std::int64_t n, std::int64_t* to) const = 0;
  virtual std::int64_t largest() const = 0;  // largest id that occurs; the first call reads all of it
  virtual std::int64_t bound() const { return largest(); }  // no id can be larger; what the width says, if it is cheap
};

enum class TokenFormat { detect, text, nanogpt, llmc };  // text = one token per byte

// path: a file, a folder (the files right in it, hidden ones aside) or a pattern of *, ? and [...]; several files are
// sorted by name and joined. detect: an llm.c header says so, else a name in .bin is nanogpt, else text. A file without
// tokens is skipped with a warning. Error{input} naming the file, what was found and what was expected.
std::unique_ptr<TokenSource> open_tokens(const std::string& path, TokenFormat, const Log&);

// Position in the data: the sequence that comes next, over all epochs. Part of a snapshot.
struct Cursor {
  std::int64_t next = 0;  // sequences of the global order consumed so far
};

struct SamplerOptions {
  std::int64_t seq_len = 0;  // a sequence is seq_len + 1 tokens: the last target is the first token of the next window
  std::int64_t micro_batch = 1;  // sequences per rank and micro-step
  int micro_steps = 1, world = 1, rank = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Error{input} when there are not seq_len + 1 tokens. Warns when there are fewer sequences than in one step.
  Sampler(std::shared_ptr<const TokenSource>, SamplerOptions, const Log&);
  std::int64_t sequences() const;     // in one epoch
  std::int64_t global_batch() const;  // sequences per step
  // A hash of some thousand tokens from all over the data: most likely another one for other data.
  std::string sample() const;
  // Which window stands at a position of the endless order: place position % sequences() of epoch position /
  // sequences(). Epochs flow into each other, so no step is ever short. O(1) memory.
  std::int64_t sequence_at(std::int64_t position) const;
  // The micro-batches of this rank for the step at the cursor, which moves on by global_batch(). Micro-step m of rank r
  // takes positions next + (m * world + r) * micro_batch + i.
  std::vector<Batch> next(Cursor&) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  SamplerOptions options_;
  std::int64_t sequences_ = 0;
};

}  // namespace shale

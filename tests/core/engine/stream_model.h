// Streams that exist on paper only: work runs at once, on the CPU, and a vector clock per stream says what of it a
// device would be free to run at the same time. Two uses of the same memory that nothing orders, one of them a write,
// are a race.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/comm/group.h"
#include "core/device/streams.h"

namespace shale {

using Clock = std::map<int, std::int64_t>;  // stream -> how far
void join(Clock& mine, const Clock& other);

class StreamModel final : public Streams {
 public:
  // What the engine asks for and the model leaves out, to see that it was needed.
  enum class Omit { nothing, event, gather_to_compute, compute_to_gather, compute_to_reduce, reduce_to_compute };
  explicit StreamModel(Omit omit = Omit::nothing) : omit_(omit) {}

  Stream current() const override { return current_; }
  void enter(Stream s) override { current_ = s; }
  void order(Stream early, Stream late) override;
  EventPtr event() override;
  void* handle(Stream) override { return nullptr; }

  int now() const { return static_cast<int>(current_); }
  Clock& clock(int stream) { return clocks_[stream]; }
  int new_stream() { return next_++; }
  // The stream uses the tensor's bytes; `what` names it in races.
  void use(int stream, const at::Tensor&, bool writes, const std::string& what);
  void reads(const at::Tensor& t, const std::string& what) { use(now(), t, false, what); }
  void writes(const at::Tensor& t, const std::string& what) { use(now(), t, true, what); }
  void found(const std::string& race) { races_.push_back(race); }
  const std::vector<std::string>& races() const { return races_; }
  std::int64_t uses() const { return uses_; }

 private:
  struct Event;
  struct Use {
    const char *begin, *end;
    int stream;
    std::int64_t at;
    bool writes;
    std::string what;
  };

  Omit omit_;
  Stream current_ = Stream::compute;
  std::map<int, Clock> clocks_;
  int next_ = static_cast<int>(kStreams);
  std::vector<Use> history_;
  std::vector<std::string> races_;
  std::int64_t uses_ = 0;
};

// A group whose other members echo its rank 0, as far as numbers go. Its transfers run on a stream of its own behind
// the current one, and wait() puts the current one behind them: what c10d's NCCL does. Masters: read by casts into
// slots.
std::unique_ptr<Group> modelled_group(StreamModel&, int size, const std::vector<at::Tensor>* masters,
                                      const std::string& name);

}  // namespace shale

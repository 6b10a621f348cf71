// A set of ranks that exchange tensors. Every call is made by all members in the same order with the same sizes. Calls
// start work and return; the result may be read, and the tensors changed or freed, after wait(). A group is used by
// one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace shale {

// Work under way. Destroying it without wait() waits too, ignoring errors; while an exception unwinds it closes the
// group's connections instead, so that no peer waits for what will not come. May outlive its group.
class Work {
 public:
  virtual ~Work() = default;
  // Error{dist} naming the operation, group and limit when the time limit has passed, or, as a secondary error, when a
  // peer is gone. Either ends the group: later calls fail at once. On CUDA it orders the current stream after the work
  // and does not block the host.
  virtual void wait() = 0;
};
using Works = std::vector<std::unique_ptr<Work>>;
void wait_all(Works&);  // in order, then empties the list

enum class Op : std::uint32_t { all_gather, reduce_scatter, all_reduce, broadcast, barrier, all_to_all, send, recv };
inline constexpr std::size_t kOps = 8;
const char* op_name(Op);

enum class Reduction { sum, max, min };

// Bytes = payload this rank sends to other ranks (ring or direct; no protocol overhead): all_gather of a full buffer of
// n bytes over W ranks counts n (W-1)/W, all_reduce 2 n (W-1)/W rounded down, broadcast n at the root, send n, recv and
// barrier nothing.
struct Traffic {
  struct Count {
    std::int64_t calls = 0, bytes = 0;
  };
  std::array<Count, kOps> ops;
  double waited = 0;  // seconds spent in wait()
  const Count& operator[](Op op) const { return ops[static_cast<std::size_t>(op)]; }
  Count& operator[](Op op) { return ops[static_cast<std::size_t>(op)]; }
  Traffic& operator+=(const Traffic&);
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // my position
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;

  // full: contiguous, size() equal pieces; piece rank() already holds mine. Nothing else is allocated.
  virtual std::unique_ptr<Work> all_gather(const at::Tensor& full) = 0;
  // full: contiguous, size() equal pieces; staging: as long as full; mine: one piece, float32 or wider. After wait():
  // mine = the sum of everybody's piece rank(), added in rank order in the type of mine, which must not overlap full.
  // Floating-point types only. Nothing else is allocated.
  virtual std::unique_ptr<Work> reduce_scatter(const at::Tensor& mine, const at::Tensor& full,
                                               const at::Tensor& staging) = 0;
  // The same bits on every rank and in every run.
  virtual std::unique_ptr<Work> all_reduce(const at::Tensor& inout, Reduction) = 0;
  virtual std::unique_ptr<Work> broadcast(const at::Tensor& inout, int root) = 0;
  virtual std::unique_ptr<Work> all_to_all(const at::Tensor& out, const at::Tensor& in) = 0;  // equal pieces
  // to, from: positions in the group; tag: from 0 to 2^30 - 2, tells messages of one pair apart. On CUDA they must also
  // be received in the order they are sent in.
  virtual std::unique_ptr<Work> send(const at::Tensor&, int to, int tag) = 0;
  virtual std::unique_ptr<Work> recv(const at::Tensor&, int from, int tag) = 0;
  virtual void barrier() = 0;
  // Ends what is under way on another thread with an error, here and at the peers; later calls fail. Any thread.
  virtual void abort() noexcept {}

  const Traffic& traffic() const { return traffic_; }

 protected:
  Traffic traffic_;
};

// Conveniences over the above; every member calls them, all wait.
double all_reduce(Group&, double value, Reduction);
std::vector<double> all_reduce(Group&, std::vector<double> values, Reduction);
// Everybody's text in rank order; for messages and plans, not for bulk data.
std::vector<std::string> all_gather_text(Group&, const std::string& mine);

}  // namespace shale

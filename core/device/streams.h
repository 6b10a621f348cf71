// Queues of work on a device beside the one that computes, and the order between them. A device that has done its work
// when a call returns (the CPU) has none: its Streams is null, and everything below then costs one comparison.
#pragma once

#include <cstdint>
#include <memory>

namespace shale {

enum class Stream : std::uint32_t { compute, gather, reduce };
inline constexpr std::size_t kStreams = 3;

// A point in the work of a stream. Neither call blocks the host.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  virtual void record() = 0;  // the point is now: after everything the current stream was given so far
  virtual void wait() = 0;    // what the current stream is given from now on starts after it; never recorded: at once
};
using EventPtr = std::unique_ptr<StreamEvent>;

// Used by the thread that runs the steps.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual Stream current() const = 0;
  virtual void enter(Stream) = 0;  // what this thread starts from now on goes there
  // What `late` is given from now on starts after everything `early` was given so far.
  virtual void order(Stream early, Stream late) = 0;
  virtual EventPtr event() = 0;      // for an order whose two ends lie apart
  virtual void* handle(Stream) = 0;  // cudaStream_t
};

// Work started while one lives goes to the given stream. Memory taken from the allocator meanwhile belongs to that
// stream and must be given back on it.
class OnStream {
 public:
  OnStream(Streams* streams, Stream stream) : streams_(streams) {
    if (streams_ == nullptr) return;
    before_ = streams_->current();
    streams_->enter(stream);
  }
  ~OnStream() {
    if (streams_ != nullptr) streams_->enter(before_);
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Streams* streams_;
  Stream before_ = Stream::compute;
};

inline void order(Streams* streams, Stream early, Stream late) {
  if (streams != nullptr) streams->order(early, late);
}
inline EventPtr make_event(Streams* streams) { return streams != nullptr ? streams->event() : nullptr; }
inline void record(const EventPtr& event) {
  if (event) event->record();
}
inline void wait_for(const EventPtr& event) {
  if (event) event->wait();
}

}  // namespace shale

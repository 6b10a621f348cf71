#include "core/device/cuda/cuda_streams.h"

#include <array>

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

namespace shale {
namespace {

class CudaStreamEvent final : public StreamEvent {
 public:
  void record() override { event_.record(c10::cuda::getCurrentCUDAStream()); }
  void wait() override { event_.block(c10::cuda::getCurrentCUDAStream()); }

 private:
  at::cuda::CUDAEvent event_;  // made at the first record; waiting for one that was never made is nothing
};

class CudaStreams final : public Streams {
 public:
  explicit CudaStreams(c10::DeviceIndex device)
      : streams_{c10::cuda::getCurrentCUDAStream(device), c10::cuda::getStreamFromPool(true, device),
                 c10::cuda::getStreamFromPool(true, device)} {}

  Stream current() const override { return current_; }
  void enter(Stream stream) override {
    c10::cuda::setCurrentCUDAStream(at(stream));
    current_ = stream;
  }
  // One event does for all: a wait is for what was recorded last when it was called.
  void order(Stream early, Stream late) override {
    joint_.record(at(early));
    joint_.block(at(late));
  }
  EventPtr event() override { return std::make_unique<CudaStreamEvent>(); }
  void* handle(Stream stream) override { return at(stream).stream(); }

 private:
  const c10::cuda::CUDAStream& at(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }

  std::array<c10::cuda::CUDAStream, kStreams> streams_;
  at::cuda::CUDAEvent joint_;
  Stream current_ = Stream::compute;
};

}  // namespace

std::unique_ptr<Streams> cuda_streams(c10::DeviceIndex device) { return std::make_unique<CudaStreams>(device); }

}  // namespace shale

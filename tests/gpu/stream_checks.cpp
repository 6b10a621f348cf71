// Streams and events: work on one stream waits for what an event says, and for nothing else.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/gpu/check.h"

namespace shale {
namespace {

constexpr std::int64_t kNumbers = 1 << 20;
constexpr const char* kTooSoon = "the long work was over too soon, so nothing was checked";

c10::Stream current(const Bench& b) { return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(b.on()); }

at::Tensor zeros_on(const Bench& b) { return at::zeros({kNumbers}, at::TensorOptions(at::kFloat).device(b.on())); }

// A point in the current stream that the host can ask about.
c10::Event mark(const Bench& b) {
  c10::Event event(at::kCUDA);
  event.record(current(b));
  return event;
}

void exist(Bench& b) {
  auto* streams = b.device.streams();
  expect(streams != nullptr, "the device has no streams");
  const auto home = current(b);
  for (auto s : {Stream::gather, Stream::reduce}) {
    const OnStream on(streams, s);
    expect(streams->current() == s && current(b) != home, "work does not move to the other stream");
    expect(streams->handle(s) == current(b).native_handle(), "the handle is that of another stream");
    expect(streams->handle(s) != streams->handle(Stream::compute), "two streams are one");
  }
  expect(streams->handle(Stream::gather) != streams->handle(Stream::reduce), "two streams are one");
  expect(current(b) == home && streams->current() == Stream::compute, "work does not come back");
}

// Compute -> other -> compute, as a gather that must wait for its slot and a unit that must wait for the gather. With
// `apart` the two ends of the first order are an event's record and wait.
void ordered(Bench& b, Stream other, bool apart) {
  auto* streams = b.device.streams();
  Busy busy(b.on());
  auto x = zeros_on(b), y = zeros_on(b), z = zeros_on(b);
  busy.work();  // loads the kernels, which would order the streams by itself
  x.fill_(0), y.copy_(x), z.copy_(y);
  b.device.synchronize();
  const auto ready = streams->event();
  busy.work();
  x.fill_(3);
  ready->record();
  if (!apart) streams->order(Stream::compute, other);
  const auto computing = mark(b);
  {
    const OnStream on(streams, other);
    if (apart) ready->wait();
    busy.work();
    y.copy_(x);
  }
  streams->order(other, Stream::compute);
  z.copy_(y);
  expect(!computing.query(), kTooSoon);
  expect(z.min().item<float>() == 3, "work began before the work it waits for was done");
}

void beside(Bench& b) {
  auto* streams = b.device.streams();
  Busy busy(b.on());
  auto x = zeros_on(b);
  busy.work(), x.fill_(1);
  b.device.synchronize();
  for (int i = 0; i < 5; ++i) busy.work();
  const auto computing = mark(b);
  const OnStream on(streams, Stream::gather);
  x.fill_(2);
  current(b).synchronize();
  expect(!computing.query(), "a gather that waits for nothing waited for the computing stream");
}

void unrecorded(Bench& b) {
  const auto event = b.device.streams()->event();
  event->wait();
  expect(zeros_on(b).sum().item<float>() == 0, "a wait for nothing broke the stream");
}

}  // namespace

void add_stream_checks(Checks& checks) {
  checks.push_back({"streams.exist", Needs::gpu, exist});
  for (bool apart : {false, true}) {
    const std::string how = apart ? "streams.event." : "streams.order.";
    checks.push_back({how + "gather", Needs::gpu, [=](Bench& b) { ordered(b, Stream::gather, apart); }});
    checks.push_back({how + "reduce", Needs::gpu, [=](Bench& b) { ordered(b, Stream::reduce, apart); }});
  }
  checks.push_back({"streams.run_beside_each_other", Needs::gpu, beside});
  checks.push_back({"streams.event_never_recorded", Needs::gpu, unrecorded});
}

}  // namespace shale

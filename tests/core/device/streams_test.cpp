#include "core/device/streams.h"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "core/device/device.h"

namespace shale {
namespace {

struct Recorded final : Streams {
  struct Event final : StreamEvent {
    explicit Event(Recorded& o) : owner(o) {}
    void record() override { owner.log.push_back("record"); }
    void wait() override { owner.log.push_back("wait"); }
    Recorded& owner;
  };
  Stream current() const override { return now; }
  void enter(Stream s) override { now = s; }
  void order(Stream early, Stream late) override {
    log.push_back(early == Stream::gather && late == Stream::compute ? "order" : "wrong order");
  }
  EventPtr event() override { return std::make_unique<Event>(*this); }
  void* handle(Stream) override { return nullptr; }
  Stream now = Stream::compute;
  std::vector<std::string> log;
};

TEST(streams, the_cpu_has_none_and_everything_is_nothing) {
  const auto device = cpu_device();
  EXPECT_EQ(device->streams(), nullptr);
  const OnStream on(device->streams(), Stream::gather);
  const auto event = make_event(device->streams());
  EXPECT_FALSE(event);
  record(event), wait_for(event);
  order(device->streams(), Stream::gather, Stream::compute);
}

TEST(streams, work_goes_back_to_where_it_was) {
  Recorded streams;
  {
    const OnStream outer(&streams, Stream::gather);
    EXPECT_EQ(streams.now, Stream::gather);
    try {
      const OnStream inner(&streams, Stream::reduce);
      EXPECT_EQ(streams.now, Stream::reduce);
      throw std::runtime_error("an error");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(streams.now, Stream::gather);
    }
  }
  EXPECT_EQ(streams.now, Stream::compute);
}

TEST(streams, events_and_orders_reach_their_streams) {
  Recorded streams;
  const auto event = make_event(&streams);
  record(event), wait_for(event);
  order(&streams, Stream::gather, Stream::compute);
  EXPECT_EQ(streams.log, (std::vector<std::string>{"record", "wait", "order"}));
}

}  // namespace
}  // namespace shale

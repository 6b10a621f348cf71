#include "core/comm/net.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {
namespace {

std::string error_text(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::dist);
    return error.what();
  }
  return "no error";
}

TEST(Net, ATakenPortIsNamed) {
  const OwnedFd first = listen_at("127.0.0.1", 0);
  const int port = port_of(first);
  EXPECT_GT(port, 0);
  EXPECT_TRUE(answers("127.0.0.1", port, 1));
  const std::string text = error_text([&] { listen_at("127.0.0.1", port); });
  EXPECT_NE(text.find(std::to_string(port) + " of 127.0.0.1 is taken"), std::string::npos) << text;
}

TEST(Net, NobodyListensAtAClosedPort) {
  int port = 0;
  {
    const OwnedFd closed = listen_at("127.0.0.1", 0);
    port = port_of(closed);
  }
  EXPECT_FALSE(answers("127.0.0.1", port, 0.1));
}

TEST(Net, AnUnknownHostIsNamed) {
  const std::string text = error_text([] { answers("no-such-host.invalid", 1, 0.1); });
  EXPECT_NE(text.find("\"no-such-host.invalid\""), std::string::npos) << text;
}

TEST(Net, AnUnknownInterfaceIsNamedWithThoseThereAre) {
  const std::string text = error_text([] { check_interface("eth_none"); });
  EXPECT_NE(text.find("\"eth_none\""), std::string::npos) << text;
  EXPECT_NE(text.find("this host has "), std::string::npos) << text;
  EXPECT_NE(text.find("lo"), std::string::npos) << text;
  check_interface("lo");
}

TEST(Net, RoutesToThisHostAreLoopback) {
  EXPECT_EQ(route_to("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_NE(host_identity().find(host_name()), std::string::npos);
}

TEST(Net, AnOwnedFdClosesOnce) {
  OwnedFd a = listen_at("127.0.0.1", 0);
  OwnedFd b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_TRUE(b);
  EXPECT_GE(OwnedFd(b.release()).get(), 0);
  EXPECT_FALSE(b);
}

}  // namespace
}  // namespace shale

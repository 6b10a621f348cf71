#include "core/comm/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "core/base/error.h"

namespace shale {
namespace {

constexpr int kBacklog = 4096;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    fail(Code::dist, "start-up: the master host \"", host, "\" does not resolve (", gai_strerror(error),
         "); check MASTER_ADDR");
  }
  return {found, &freeaddrinfo};
}

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// Of the other end; 0 if there is none.
int peer_port(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return 0;
  if (peer.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&peer)->sin_port);
  if (peer.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_port);
  return 0;
}

// 0, or errno.
int try_listen(OwnedFd& out, const sockaddr* address, socklen_t length) {
  OwnedFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd.get(), address, length) != 0 || listen(fd.get(), kBacklog) != 0) return errno;
  out = std::move(fd);
  return 0;
}

int try_listen_everywhere(OwnedFd& out, int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  const int error = try_listen(out, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return error;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  return try_listen(out, reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

bool connects(const addrinfo& to, double seconds) {
  const OwnedFd fd(socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waiting{fd.get(), POLLOUT, 0};
  if (poll(&waiting, 1, static_cast<int>(seconds * 1e3) + 1) != 1) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// The source address the kernel would choose; "" without a route.
std::string source_address(const addrinfo& to) {
  const OwnedFd fd(socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) return "";
  sockaddr_storage mine{};
  socklen_t length = sizeof mine;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0) return "";
  return numeric(reinterpret_cast<const sockaddr*>(&mine));
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd listen_at(const std::string& host, int port) {
  const Addresses addresses = resolve(host, port);
  OwnedFd out;
  const bool local = is_loopback(numeric(addresses->ai_addr));
  const int error =
      local ? try_listen(out, addresses->ai_addr, addresses->ai_addrlen) : try_listen_everywhere(out, port);
  if (error == EADDRINUSE) {
    fail(Code::dist, "start-up: port ", port, " of ", host,
         " is taken by another process; choose another MASTER_PORT or end that process");
  }
  if (error != 0) fail(Code::dist, "start-up: cannot listen at ", host, ":", port, ": ", std::strerror(error));
  return out;
}

int port_of(const OwnedFd& listening) {
  sockaddr_storage mine{};
  socklen_t length = sizeof mine;
  const bool known = getsockname(listening.get(), reinterpret_cast<sockaddr*>(&mine), &length) == 0;
  check(known, "port_of: not a socket");
  const bool six = mine.ss_family == AF_INET6;
  return ntohs(six ? reinterpret_cast<sockaddr_in6&>(mine).sin6_port : reinterpret_cast<sockaddr_in&>(mine).sin_port);
}

bool answers(const std::string& host, int port, double seconds) {
  const Addresses addresses = resolve(host, port);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    if (connects(*a, seconds)) return true;
  }
  return false;
}

void limit_answers_from(int port, double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timeval limit{whole, static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (peer_port(fd) == port) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
}

std::string route_to(const std::string& host) {
  const Addresses addresses = resolve(host, 9);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    if (const std::string source = source_address(*a); !source.empty()) return source;
  }
  fail(Code::dist, "start-up: no route to the master host ", host, "; check MASTER_ADDR and the network");
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

void check_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) fail(Code::dist, "start-up: cannot list network interfaces: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  std::set<std::string> there;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && !numeric(i->ifa_addr).empty();
    if (usable) there.insert(i->ifa_name);
  }
  if (there.contains(name)) return;
  const std::vector<std::string> names(there.begin(), there.end());
  fail(Code::dist, "start-up: network interface \"", name, "\" (GLOO_SOCKET_IFNAME) is not there or has no address; ",
       "this host has ", join(names, ", "));
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + "/" + boot;
}

}  // namespace shale

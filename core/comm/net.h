// The few things of the socket interface that start-up needs. Addresses are tried in the order the resolver gives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace shale {

// A file descriptor that is closed with its owner.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Listens at the port (0 = any free one). For a host that is this machine's loopback only there, else on all
// interfaces. Error{dist} naming host and port: taken, not allowed, unknown host.
OwnedFd listen_at(const std::string& host, int port);
int port_of(const OwnedFd& listening);

// One try to connect, at most `seconds` long; true if somebody accepts there. Error{dist} for a host name that does
// not resolve.
bool answers(const std::string& host, int port, double seconds);

// Reads from this process's connections to that port of any host fail after so many seconds without an answer. For
// connections that a library made and keeps to itself.
void limit_answers_from(int port, double seconds);

// The address of this machine from which packets to `host` leave: what a peer can reach. Sends nothing. "127.0.0.1"
// where host is local, also under its own name.
std::string route_to(const std::string& host);
bool is_loopback(const std::string& address);

// Error{dist} naming the interface, and those there are, unless it has an address.
void check_interface(const std::string& name);

std::string host_name();
// Names the machine as its processes see it: two containers of one machine differ, and so do two machines of one name.
std::string host_identity();

}  // namespace shale

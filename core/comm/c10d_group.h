// Groups over c10d's Gloo. For world.cpp's c10d half only: everybody else sees Group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/comm/group.h"

namespace gloo::transport {
class Device;
}

namespace shale {

// The sockets that all groups of a process share.
using GlooDevice = std::shared_ptr<gloo::transport::Device>;
GlooDevice open_device(const std::string& interface_name, const std::string& address);  // by name if given

struct GroupSpec {
  std::string name;                          // for messages
  std::vector<int> ranks;                    // the members, ascending: two or more
  int rank = 0;                              // this process's rank in the world, one of them
  double init_timeout = 300, timeout = 100;  // seconds: to connect, and for each later wait
  int threads = 1;                           // that run all_reduce, broadcast and barrier; the rest needs none
};

// Meets the other members in `store`, which nobody else uses. Error{dist} naming the group and its ranks.
std::unique_ptr<Group> connect_group(const GroupSpec&, const GlooDevice&, const c10::intrusive_ptr<c10d::Store>& store);

// What a c10d or Gloo exception says, on one line without source places and stack.
std::string plain_reason(const std::exception&);
bool is_timeout(const std::string& reason);  // a limit passed here, so this is a first cause
bool is_silence(const std::string& reason);  // of the store's connection; also a timeout

// While one lives, signals are not delivered to threads started meanwhile: handlers run on the main thread only, and a
// peer that hangs up does not end the process by SIGPIPE.
class QuietThreads {
 public:
  QuietThreads();
  ~QuietThreads();
  QuietThreads(const QuietThreads&) = delete;
  QuietThreads& operator=(const QuietThreads&) = delete;

 private:
  struct Mask;
  std::unique_ptr<Mask> old_;
};

}  // namespace shale

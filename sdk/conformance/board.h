// Where the calls of simulated ranks meet: collectives of one kind of lane over shared memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "numbers.h"

namespace shale::conform {

// One rank's call of a collective.
struct Post {
  const char* what;  // "all_gather"
  std::uint32_t group = 0, rank = 0;
  std::uint32_t number = 0;  // of the hook call it was made in
  std::uint32_t choice = 0;  // operation, or root
  shale_tensor send{}, recv{};
  bool done = false;
};

// What is wrong with a call seen alone, "" = nothing. part: the ranks it is made with.
std::string problem(const Post&, const std::vector<std::uint32_t>& part);

class Board {
 public:
  Board(std::vector<std::vector<std::uint32_t>> groups, double wait_limit);  // groups: [group][rank] color
  const std::vector<std::uint32_t>& part(std::uint32_t group, std::uint32_t rank) const;
  std::uint32_t groups() const { return static_cast<std::uint32_t>(parts_.size()); }

  void start();                    // every rank begins its hooks
  void leave(std::uint32_t rank);  // this rank has no more hooks to run
  std::string meet(Post&);         // waits for the others; what went wrong, "" = done
  // Why calls did not meet, "" = they did. Every later call fails with it.
  std::string cause() const;

 private:
  enum class State { running, waiting, gone };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // group, first rank of the part

  void complete(std::vector<Post*>& all);
  void look_for_stuck();  // a call that nobody will join any more
  std::string missing(const std::vector<Post*>& here) const;

  std::vector<std::vector<std::vector<std::uint32_t>>> parts_;  // [group][rank] the ranks of its part
  double wait_limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::map<Key, std::vector<Post*>> open_;
  std::string cause_;
};

}  // namespace shale::conform

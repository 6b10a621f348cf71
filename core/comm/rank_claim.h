// Finds two processes of one host that were started with the same rank, even when the rank 0 that could tell them never
// comes up. Holds a name in the kernel's abstract socket space while the job starts; it vanishes with the process.
#pragma once

#include "core/comm/net.h"
#include "core/config/launch.h"

namespace shale {

class RankClaim {
 public:
  // Error{dist} when a process of this user on this host already starts as this rank of this job; it learns of us too.
  explicit RankClaim(const Launch&);
  // Error{dist} when another process has asked for the same rank since. Never waits.
  void check();

 private:
  [[noreturn]] void taken_by(int pid) const;

  int rank_;
  OwnedFd socket_;
};

}  // namespace shale

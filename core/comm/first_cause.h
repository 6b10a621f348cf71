// On several hosts: the ranks of one host learn from the job's store why a rank of another failed.
#pragma once

#include "core/comm/world.h"

namespace shale {

// Inside a catch block around all that a rank does in the world. Throws the exception on, or, where it only shows that
// a peer is gone, the first cause that a rank left in the store, marked secondary. On several hosts it takes a few
// seconds at most; on one it does nothing else, for there the launcher knows.
[[noreturn]] void rethrow_first_cause(World&);

}  // namespace shale

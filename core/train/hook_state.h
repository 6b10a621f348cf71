// What a strategy's hooks keep, and what replicas that train apart do not share, in snapshots.
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/snapshot.h"
#include "core/train/run.h"

namespace shale {

// This rank's pieces. State of scope shard is saved by parameter, like weights, so it loads under any plan; what
// belongs to a rank by the rank's number, so it loads under the same plan only.
std::vector<Piece> hook_pieces(Run&);
// Says which plan a snapshot was made under.
Item plan_item(const Run&);

// After weights and optimizer were loaded. What is not there, or belongs to ranks of another plan, begins from its
// first value with a warning; Error{checkpoint} where the plugin refuses that.
void load_hook_state(Run&, SnapshotReader&, const std::string& path);

}  // namespace shale

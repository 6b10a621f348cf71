// Where the state of a run comes from and goes to: initial values, Hugging Face folders, snapshots.
#pragma once

#include <string>

#include "core/checkpoint/snapshot.h"
#include "core/train/run.h"

namespace shale {

// Weights before any snapshot: checkpoint.initial_load_path, else the weights in model.hf_assets_path, else initial
// values from the seed.
void first_weights(Run&);

// Takes everything a snapshot holds: weights, optimizer, progress, loss scale. Error{checkpoint} with names and counts
// when it is another model's; warnings say which edited settings win.
void resume(Run&, const std::string& snapshot);

// Collective: what a snapshot of the run's current step holds. Its tensors are the run's own memory.
SnapshotSpec describe_state(Run&, const std::string& checkpoints);

}  // namespace shale

// A small model with every awkwardness the engine must carry, and its training without an engine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/data/batch.h"
#include "core/model/model.h"

namespace shale {

struct MiniOptions {
  int layers = 3;
  bool tied = false;                     // the head uses the embedding's weight
  bool unused = false;                   // the embedding owns a parameter that nothing computes with
  bool branching = false;                // layer 1 is passed over for batches whose first target does not count
  bool reused = false;                   // layer 0 runs again after the last one
  std::vector<std::string> frozen = {};  // parameter names
};

Model mini_model(const MiniOptions&);

// Batch number `index` of the run, the same on every rank; sizes do not divide evenly.
Batch mini_batch(std::int64_t index);

using Parameters = std::map<std::string, at::Tensor>;  // full, float64
Parameters mini_weights(const Model&);

struct DenseResult {
  std::vector<double> losses;  // mean over the step's targets
  Parameters weights;
};

// `steps` steps of plain gradient descent, each over batches [step * per_step, ...), by one autograd graph over the
// whole model and dense gradients.
DenseResult train_dense(const Model&, int steps, int per_step, double lr);

}  // namespace shale

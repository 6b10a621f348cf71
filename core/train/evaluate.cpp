#include "core/train/evaluate.h"

namespace shale {

double validation_loss(Run& run) {
  Cursor cursor;
  double loss = 0, tokens = 0;
  for (std::int64_t i = 0; i < run.config().validation.steps; ++i)
    for (auto& batch : run.validation->next(cursor)) {
      loss += run.engine->evaluate(batch);
      tokens += static_cast<double>(batch.n_targets);
    }
  const auto sums = all_reduce(run.everyone(), {loss, tokens}, Reduction::sum);
  return sums[0] / sums[1];
}

}  // namespace shale

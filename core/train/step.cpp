// The life of a step. Read this after core/README.md: each line is a call into one room.
#include "core/train/step.h"

#include <algorithm>
#include <cmath>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/optim/norm.h"

namespace shale {
namespace {

std::int64_t count_targets(const Run& run, const std::vector<Batch>& batches) {
  double mine = 0;
  for (auto& b : batches) mine += static_cast<double>(b.n_targets);
  const auto all = std::llround(all_reduce(run.scope(), mine, Reduction::sum));
  return std::max<std::int64_t>(1, all);
}

// The signal that some rank was sent, so that all leave after the same step.
int agree_to_stop(const Run& run) {
  const double mine = run.stop_signal ? (*run.stop_signal)() : 0;
  return static_cast<int>(all_reduce(run.everyone(), mine, Reduction::max));
}

// What to do about numbers that are not finite: all ranks see the same sums, so all decide alike.
void refuse_not_finite(const Run& run, const StepReport& r) {
  const bool overflow_of_scale = run.scaler->scale() != 1 && std::isfinite(r.loss);
  if (overflow_of_scale || run.config().training.nan_policy == "skip") return;
  fail(Code::numeric, "the ", std::isfinite(r.loss) ? "gradient norm" : "loss", " is ",
       std::abs(std::isfinite(r.loss) ? r.grad_norm : r.loss), "; lower optimizer.lr, look at the data, or set ",
       "training.nan_policy = \"skip\"");
}

// Replicas that train apart have losses and norms of their own. What is told is the mean over them, and all skip a step
// that one must skip: the loss scale is one number.
void average_over_islands(const Run& run, double loss, StepReport& r) {
  if (!run.island) return;
  const double part = 1.0 / run.island->size(), share = 1.0 / run.around.world.size();
  const auto sums = all_reduce(run.everyone(), {loss * part, static_cast<double>(r.tokens) * part, r.grad_norm * share},
                               Reduction::sum);
  r.loss = sums[0] / sums[1], r.tokens = std::llround(sums[1]), r.grad_norm = sums[2];
}

}  // namespace

StepReport train_step(Run& run) {
  const double start = now();
  auto& engine = *run.engine;
  StepReport r;
  r.step = run.progress.step + 1;
  r.lr = run.schedule.at(run.progress.step);

  const auto batches = run.data->next(run.progress.cursor);
  r.tokens = count_targets(run, batches);
  const double tokens = static_cast<double>(r.tokens), scale = run.scaler->scale();

  double loss = 0;
  engine.begin_step(r.step, scale, run.progress.skipped);
  for (std::size_t m = 0; m < batches.size(); ++m)
    loss += engine.forward_backward(batches[m], scale / tokens, m + 1 == batches.size());
  engine.end_step();

  const auto sums = all_reduce(run.scope(), {squared_norm(engine.shards()), loss}, Reduction::sum);
  const double norm = r.grad_norm = std::sqrt(sums[0]) / scale;
  r.loss = sums[1] / tokens;
  average_over_islands(run, sums[1], r);
  r.stop_signal = agree_to_stop(run);

  r.skipped = !std::isfinite(r.grad_norm) || !std::isfinite(r.loss);
  if (r.skipped) refuse_not_finite(run, r);
  engine.conclude(r.skipped);
  if (!r.skipped) run.optimizer->step(engine.shards(), r.lr, clip_factor(norm, run.config().training.max_norm) / scale);
  if (engine.outer_step() || !r.skipped) engine.weights_changed();
  run.scaler->update(!r.skipped);
  run.progress.step = r.step;
  run.progress.tokens += r.tokens;
  run.progress.skipped = r.skipped;
  r.seconds = now() - start;
  return r;
}

}  // namespace shale

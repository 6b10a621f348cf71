#include "core/train/loop.h"

#include "core/base/error.h"
#include "core/comm/rank_report.h"
#include "core/train/evaluate.h"
#include "core/train/load.h"
#include "core/train/report.h"
#include "core/train/run_folder.h"
#include "core/train/signals.h"
#include "core/train/snapshots.h"
#include "core/train/step.h"

namespace shale {
namespace {

bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

void tell_saving(Reporter& reporter, std::int64_t step, Snapshots::Outcome outcome, double blocked) {
  reporter.snapshot(step, outcome != Snapshots::Outcome::skipped, blocked);
  if (outcome == Snapshots::Outcome::saved) reporter.note(str("step ", step, ": saved a snapshot"));
  if (outcome == Snapshots::Outcome::started)
    reporter.note(str("step ", step, ": saving a snapshot in the background"));
  if (outcome == Snapshots::Outcome::skipped)
    reporter.note(str("step ", step, ": no snapshot, the one before is still being written"));
}

void tell_completed(Reporter& reporter, std::int64_t step) {
  if (step >= 0) reporter.note(str("the snapshot of step ", step, " is complete"));
}

void after_step(Run& run, Snapshots& snapshots, Reporter& reporter, const StepReport& report) {
  const auto& c = run.config();
  const bool last = report.step == run.total_steps || report.stop_signal != 0;
  tell_completed(reporter, snapshots.completed());
  if (run.validation && (due(report.step, c.validation.freq) || report.step == run.total_steps))
    reporter.validation(run, validation_loss(run));
  if (c.checkpoint.enable && (last || due(report.step, c.checkpoint.interval)))
    tell_saving(reporter, report.step, snapshots.save(), snapshots.blocked_seconds());
  if (last) tell_completed(reporter, snapshots.finish());
}

// What goes wrong in a step says in which, also to the launcher, should this process be killed in it.
template <class Work>
void in_step(const Surroundings& s, std::int64_t step, Work&& work) {
  if (s.step_told) s.step_told->store(step);
  try {
    work();
  } catch (...) {
    const RankReport wrong = current_exception_report();
    Error error(wrong.code, str("step ", step, ": ", wrong.text));
    if (wrong.secondary) error.mark_secondary();
    throw error;
  }
}

int leave(Reporter& reporter, const Run& run, const StepReport& report) {
  if (report.stop_signal == 0) return 0;
  reporter.note(str("stopped by signal ", report.stop_signal, " after step ", report.step,
                    run.config().checkpoint.enable ? "" : "; checkpoint.enable is off, so nothing was saved"));
  return 128 + report.stop_signal;
}

void tell_start(Run& run, const RunFolder& folder, Reporter& reporter) {
  const auto& c = run.config();
  reporter.note(str("model ", run.model.architecture.name, ", ", run.model.info.numel(), " parameters; ",
                    run.around.world.size(), " rank(s); sharding ", c.sharding.plugin, ", precision ",
                    c.precision.plugin, "; ", run.data->sequences(), " sequences of ", c.training.seq_len, " tokens, ",
                    run.data->global_batch(), " a step; run folder ", folder.path));
  if (!folder.resume_from.empty())
    reporter.note(str("resumed from ", folder.resume_from, " after step ", run.progress.step));
  else if (c.checkpoint.resume == "auto")
    reporter.note("resume = \"auto\": no snapshot yet, starting at step 0");
  if (run.progress.step >= run.total_steps)
    reporter.note(str("nothing left to do: ", run.progress.step, " of ", run.total_steps, " steps are done"));
}

}  // namespace

int train(const Surroundings& s) {
  const StopSignals signals;
  const std::function<int()> received = [&] { return signals.received(); };
  const auto folder = open_run_folder(s.world.everyone(), s.config);
  const auto run = prepare(s);
  run->stop_signal = &received;
  if (folder.resume_from.empty())
    first_weights(*run);
  else
    resume(*run, folder.resume_from);
  s.world.everyone().barrier();  // a rank may still read first weights from what is deleted now
  if (s.world.rank() == 0) {
    delete_doomed(folder);
    write_run_files(folder, s.config, s.plugins.describe());
  }

  Reporter reporter(*run, folder.path);
  Snapshots snapshots(*run, folder.checkpoints);
  tell_start(*run, folder, reporter);
  StepReport report;
  while (run->progress.step < run->total_steps && report.stop_signal == 0) {
    in_step(s, run->progress.step + 1, [&] {
      report = train_step(*run);
      reporter.step(*run, report);
      after_step(*run, snapshots, reporter, report);
    });
  }
  if (reporter.tokens_per_second() > 0)
    reporter.note(str("done: ", run->progress.step, " steps, ", run->progress.tokens, " tokens, ",
                      static_cast<std::int64_t>(reporter.tokens_per_second()), " tokens/s after the first step"));
  return leave(reporter, *run, report);
}

}  // namespace shale

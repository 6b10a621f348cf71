"""The same run again, in parts, on other numbers of ranks: losses and learning rates. C4, C34."""
import math
import unittest

import tool


class Repeat(tool.RunTest):
    def test_a_run_twice_is_bitwise_the_same(self):
        for sharding in ("full_shard", "no_shard"):
            for precision in ("uniform", "bf16_mixed"):
                with self.subTest(sharding=sharding, precision=precision):
                    runs = [self.train(f"twice-{sharding}-{precision}-{i}", training__steps=12, training__shuffle=True,
                                       sharding__plugin=sharding, precision__plugin=precision) for i in (1, 2)]
                    self.assertEqual(len(runs[0].losses), 12)
                    self.assertEqual(runs[0].losses, runs[1].losses)
                    norms = [[r["grad_norm"] for r in run.rows] for run in runs]
                    self.assertEqual(norms[0], norms[1])
                    ends = [tool.read_snapshot(tool.snapshot_path(run.folder, 12)) for run in runs]
                    self.assert_same_tensors(*ends, "final weights")

    def test_threads_do_not_change_a_run_between_two_times(self):
        runs = [self.train(f"threads-{i}", 1, training__steps=6, training__threads=2, training__seq_len=64,
                           training__local_batch_size=16) for i in (1, 2)]
        self.assertEqual(len(runs[0].losses), 6)
        self.assertEqual(runs[0].losses, runs[1].losses)

    def stop_and_resume(self, name, nproc=2, **changes):
        straight = self.train(name + "-straight", nproc, training__steps=20, **changes)
        self.train(name, nproc, training__steps=10, lr_scheduler__total_steps=20, **changes)
        resumed = self.train(name, nproc, training__steps=20, checkpoint__resume="auto", **changes)
        self.assertEqual(sorted(resumed.losses), list(range(1, 21)), "metrics.jsonl goes on without a gap")
        self.assertEqual(resumed.losses, straight.losses)
        self.assertEqual(resumed.rates, straight.rates)
        for role, key in ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg"), (tool.OPTIMIZER, "exp_avg_sq")):
            ends = [tool.read_snapshot(tool.snapshot_path(run.folder, 20), role, key) for run in (straight, resumed)]
            self.assert_same_tensors(*ends, key)
        self.assertIn("resumed from", resumed.out)
        self.assertNotIn("warning", resumed.err.lower())
        return straight

    def test_stop_at_10_and_resume_to_20_is_bitwise_20_straight(self):
        cases = {
            "plain": {},
            "no_shard": {"sharding__plugin": "no_shard"},
            "bf16": {"precision__plugin": "bf16_mixed"},
            # 256 sequences an epoch: 20 steps of 32 cross two ends of an epoch, one of them within the first half.
            "epochs": {"training__shuffle": True, "training__local_batch_size": 16},
            "accumulation": {"training__global_batch_size": 12, "training__shuffle": True},
            "boundary": {"training__global_batch_size": 12, "sharding__options__reduce_at": "boundary"},
            "checkpointing": {"activation_checkpoint__mode": "full", "precision__plugin": "bf16_mixed"},
        }
        for name, changes in cases.items():
            with self.subTest(name):
                self.stop_and_resume(name, **changes)

    def test_from_two_ranks_onto_one_and_four(self):
        common = dict(training__shuffle=True, training__global_batch_size=8, lr_scheduler__total_steps=20)
        straight = self.train("two-straight", 2, training__steps=20, training__local_batch_size=4, **common)
        first = self.train("two", 2, training__steps=10, training__local_batch_size=4, **common)
        for ranks in (1, 4):
            with self.subTest(ranks=ranks):
                # C34: the order of the data goes on whatever the number of ranks; another order would show at once.
                resumed = self.train(f"two-on-{ranks}", ranks, training__steps=20,
                                     training__local_batch_size=8 // ranks,
                                     checkpoint__resume=tool.snapshot_path(first.folder, 10), **common)
                later = {step: loss for step, loss in straight.losses.items() if step > 10}
                self.assert_near(resumed.losses, later, 1e-5, f"2 ranks resumed on {ranks}")
        onto_no_shard = self.train("two-no-shard", 2, training__steps=20, training__local_batch_size=4,
                                   sharding__plugin="no_shard", checkpoint__resume=tool.snapshot_path(first.folder, 10),
                                   **common)
        self.assert_near(onto_no_shard.losses, later, 1e-5, "full_shard resumed as no_shard")

    def test_initial_weights_do_not_depend_on_the_number_of_ranks_or_plugins(self):
        runs = {}
        for ranks, plugin in ((1, "full_shard"), (2, "full_shard"), (4, "full_shard"), (2, "no_shard")):
            runs[ranks, plugin] = self.train(f"first-{ranks}-{plugin}", ranks, training__steps=1,
                                             model__hf_assets_path=self.root + "/empty", optimizer__lr=0.0,
                                             training__local_batch_size=4 // ranks, sharding__plugin=plugin)
        one = runs[1, "full_shard"]
        whole = tool.read_snapshot(tool.snapshot_path(one.folder, 1))
        self.assertEqual(len(whole), 21)
        for key, run in runs.items():
            self.assert_near(run.losses, one.losses, 1e-6, f"loss of step 1, {key}")
            self.assert_same_tensors(tool.read_snapshot(tool.snapshot_path(run.folder, 1)), whole, f"weights, {key}")
        other = self.train("first-other", 2, training__steps=1, model__hf_assets_path=self.root + "/empty",
                           debug__seed=4321)
        self.assertNotEqual(other.losses[1], one.losses[1])


class ScheduleC4(tool.RunTest):
    settings = {"lr_scheduler.warmup_steps": 3}

    def test_rates_after_a_resume(self):
        straight = self.train("straight", training__steps=20)
        first = self.train("first", training__steps=8, lr_scheduler__total_steps=20)
        snapshot = tool.snapshot_path(first.folder, 8)
        same = self.train("same", training__steps=20, checkpoint__resume=snapshot)
        self.assertEqual(same.rates, {s: r for s, r in straight.rates.items() if s > 8})
        self.assertNotIn("the configuration wins", same.err)

        # The configuration wins: as if the run had always had the new rate or length, and a warning says so.
        edited = self.train("edited", training__steps=20, optimizer__lr=2e-3, checkpoint__resume=snapshot)
        self.assert_near(edited.rates, {s: 2 * r for s, r in straight.rates.items() if s > 8}, 1e-12, "edited rate")
        self.assertEqual(edited.err.count("the configuration wins"), 1, edited.err)
        self.assertRegex(edited.err, r"optimizer.lr was 0\.001 .* is 0\.002 now; the configuration wins")

        longer = self.train("longer", training__steps=40, checkpoint__resume=snapshot)
        expected = {s: 1e-3 * 0.5 * (1 + math.cos(math.pi * (s - 1 - 3) / 37)) for s in range(9, 41)}
        self.assert_near(longer.rates, expected, 1e-9, "edited length")
        self.assertRegex(longer.err, r"steps of the schedule was 20 .* is 40 now; the configuration wins")

    def test_a_new_warm_up_is_told(self):
        first = self.train("short", training__steps=4, lr_scheduler__total_steps=20)
        again = self.train("again", training__steps=5, lr_scheduler__total_steps=20, lr_scheduler__warmup_steps=5,
                           lr_scheduler__decay_type="linear", checkpoint__resume=tool.snapshot_path(first.folder, 4))
        self.assertRegex(again.err, r"lr_scheduler.warmup_steps was 3 .* is 5 now")
        self.assertRegex(again.err, r"lr_scheduler.decay_type was cosine .* is linear now")


class Length(tool.RunTest):
    def test_epochs_with_a_warm_up_that_nobody_asked_for(self):
        # 256 sequences, 128 a step: 4 steps, fewer than the default warm-up of 200.
        run = self.train("epochs", 2, training__steps=None, training__epochs=2, training__local_batch_size=64,
                         lr_scheduler__warmup_steps=None)
        self.assertEqual(sorted(run.losses), [1, 2, 3, 4])
        self.assertEqual(run.rates[1], 1e-3)

    def test_epochs_with_a_warm_up_that_is_too_long(self):
        run = self.train("too-long", 2, code=2, training__steps=None, training__epochs=2,
                         training__local_batch_size=64, lr_scheduler__warmup_steps=5)
        self.assertIn("warmup_steps 5 is longer than the whole schedule of 4 steps", run.err)
        self.assertIn("too-long.toml:", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)

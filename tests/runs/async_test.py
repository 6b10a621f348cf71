"""Snapshots written beside the steps."""
import os
import unittest

import tool


class AsyncTest(tool.RunTest):
    settings = {"checkpoint.async_mode": "async"}

    def test_a_snapshot_holds_the_step_it_was_taken_at(self):
        plain = self.train("plain", training__steps=12, checkpoint__interval=4, checkpoint__async_mode="disabled",
                           training__shuffle=True)
        beside = self.train("beside", training__steps=12, checkpoint__interval=4, training__shuffle=True)
        self.assertEqual(beside.losses, plain.losses)
        self.assertEqual(beside.snapshots, [4, 8, 12])
        for step in (4, 8, 12):
            for role, key in ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg"), (tool.OPTIMIZER, "exp_avg_sq")):
                self.assert_same_tensors(
                    tool.read_snapshot(tool.snapshot_path(beside.folder, step), role, key),
                    tool.read_snapshot(tool.snapshot_path(plain.folder, step), role, key), f"step {step} {key}")
        self.assertIn("the snapshot of step 12 is complete", beside.out)
        self.assertEqual([(r["step"], r["snapshot"]) for r in beside.saves], [(4, True), (8, True), (12, True)])

    def test_a_run_goes_on_from_it_bitwise(self):
        for world in (1, 2, 4):
            with self.subTest(world=world):
                whole = self.train(f"whole{world}", nproc=world, training__steps=9, training__local_batch_size=1)
                self.train(f"part{world}", nproc=world, training__steps=5, training__local_batch_size=1,
                           checkpoint__interval=2, lr_scheduler__total_steps=9)
                rest = self.train(f"part{world}", nproc=world, training__steps=9, training__local_batch_size=1,
                                  checkpoint__interval=2, checkpoint__resume="auto")
                self.assertEqual(rest.losses, whole.losses)

    def test_every_step_waits_or_skips(self):
        waits = self.train("waits", training__steps=8, checkpoint__interval=1, checkpoint__keep_latest_k=3)
        self.assertEqual(waits.snapshots, [6, 7, 8])
        skips = self.train("skips", training__steps=8, checkpoint__interval=1, checkpoint__keep_latest_k=0,
                           checkpoint__while_saving="skip")
        self.assertEqual([r["step"] for r in skips.saves], list(range(1, 9)))
        self.assertEqual([r["step"] for r in skips.saves if r["snapshot"]], skips.snapshots)
        self.assertEqual(skips.out.count("still being written"), 8 - len(skips.snapshots))

    def test_a_save_that_fails_ends_the_run_and_keeps_the_last_good_one(self):
        run = self.start("fails", training__steps=100000, checkpoint__interval=40)
        self.wait_for_step("fails", 41)
        os.mkdir(tool.snapshot_path(self.root + "/fails", 80))  # somebody else's
        done = self.finish("fails", run, 6)
        self.assertIn("step-00000080: is there and is no whole snapshot", done.err)
        self.assertEqual(done.err.count("E-"), 1, done.err)
        self.assertLess(max(done.losses), 121)
        os.rmdir(tool.snapshot_path(self.root + "/fails", 80))
        rest = self.train("fails", training__steps=44, checkpoint__resume="auto", lr_scheduler__total_steps=100000)
        self.assertIn("after step 40", rest.out)
        self.assertEqual(rest.losses[41], done.losses[41])

    def test_a_stop_signal_waits_for_the_snapshot(self):
        run = self.start("stopped", training__steps=100000, checkpoint__interval=3)
        self.wait_for_step("stopped", 7)
        tool.kill(run.pid)
        done = self.finish("stopped", run, 143)
        self.assertEqual(done.snapshots[-1], max(done.losses))
        self.assertNotIn(".saving", " ".join(os.listdir(done.folder + "/checkpoints")))


if __name__ == "__main__":
    unittest.main()

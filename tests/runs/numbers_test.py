"""Numbers that are not finite, and the loss on held-out data."""
import math
import unittest

import numpy as np

import tool

POISON = 96  # a token whose embedding is infinite: every batch that holds it gives no finite loss


def poison(tensors):
    tensors["model.embed_tokens.weight"][POISON] = np.inf


class NotFinite(tool.RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tool.write_model(cls.root + "/poisoned", edit=poison)
        tool.write_model(cls.root + "/hopeless", edit=lambda t: t["model.embed_tokens.weight"].fill(np.inf))
        # 4 sequences of 16 a step on 2 ranks: the poison is in the third step, in the part of rank 1.
        tokens = tool.fixture_tokens(6 * 64 + 1) % POISON
        tokens[2 * 64 + 40] = POISON
        tool.write_tokens(cls.root + "/poisoned.bin", tokens)
        cls.poisoned = dict(model__hf_assets_path=cls.root + "/poisoned", training__steps=6,
                            training__dataset_path=cls.root + "/poisoned.bin", checkpoint__interval=1)

    def test_a_run_that_diverges_stops_and_names_the_step(self):
        run = self.train("diverges", code=7, optimizer__lr=1e30, training__steps=50, lr_scheduler__warmup_steps=0,
                         optimizer__weight_decay=0.0)
        self.assertRegex(run.err, r"E-num: step \d+: the (loss|gradient norm) is -?(nan|inf)")
        self.assertIn("optimizer.lr", run.err)
        last = max(run.losses, default=0)
        self.assertLess(last, 50)
        self.assertIn(f"step {last + 1}:", run.err, "the step after the last that was told")
        self.assertEqual(run.snapshots, [], "weights that are no numbers are not saved")

    def test_stop_leaves_the_snapshots_of_good_steps(self):
        run = self.train("stops", code=7, **self.poisoned)
        self.assertIn("E-num: step 3: the loss is", run.err)
        self.assertEqual((sorted(run.losses), run.snapshots), ([1, 2], [1, 2]))

    def test_skip_goes_on_with_unchanged_weights(self):
        run = self.train("skips", training__nan_policy="skip", **self.poisoned)
        rows = {r["step"]: r for r in run.rows}
        self.assertEqual([s for s in rows if rows[s]["skipped"]], [3])
        self.assertIsNone(rows[3]["loss"], "JSON has no word for a number that is not finite")
        self.assertTrue(all(math.isfinite(rows[s]["loss"]) for s in rows if s != 3))
        states = {}
        for step in (2, 3, 4):
            path = tool.snapshot_path(run.folder, step)
            states[step] = {key: tool.read_snapshot(path, role, key) for role, key in
                            ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg"), (tool.OPTIMIZER, "exp_avg_sq"))}
        for key in states[2]:
            self.assert_same_tensors(states[3][key], states[2][key], f"{key} of the skipped step")
        self.assertTrue((states[4]["weight"]["lm_head.weight"] != states[3]["weight"]["lm_head.weight"]).any())
        self.assertIn("(skipped: not finite)", run.out)
        # The skipped step does not count as an update, and the run resumes from it like from any other.
        inspect = self.shale("checkpoint", "inspect", tool.snapshot_path(run.folder, 3)).stdout
        self.assertRegex(inspect, r"optimizer/lm_head\.weight/step +value +2\n")
        again = self.train("skips-again", training__nan_policy="skip", **self.poisoned,
                           checkpoint__resume=tool.snapshot_path(run.folder, 3))
        self.assertEqual(again.losses, {s: l for s, l in run.losses.items() if s > 3})

    def test_skip_to_the_end(self):
        run = self.train("all-skipped", training__nan_policy="skip", training__steps=4, checkpoint__interval=1,
                         model__hf_assets_path=self.root + "/hopeless", optimizer__lr=1e-2)
        self.assertEqual([r["skipped"] for r in run.rows], [True] * 4)
        first, last = (tool.read_snapshot(tool.snapshot_path(run.folder, step)) for step in (1, 4))
        self.assert_same_tensors(last, first, "weights")


class Validation(tool.RunTest):
    settings = {"validation.enable": True, "validation.freq": 3, "validation.steps": 2,
                "training.global_batch_size": 8, "optimizer.lr": 1e-2, "optimizer.weight_decay": 0.0}

    def setUp(self):
        self.data = {"validation__dataset_path": self.root + "/held-out.bin"}

    def test_every_n_steps_and_at_the_end(self):
        run = self.train("every", **self.data)
        self.assertEqual(sorted(run.validation), [3, 6, 8])
        self.assertEqual(run.out.count("validation loss"), 3)
        self.assertIn(f"step 6/8  validation loss {run.validation[6]:.4f}", run.out)

    def test_does_not_depend_on_the_number_of_ranks(self):
        one = self.train("ranks-1", 1, training__local_batch_size=8, **self.data)
        for ranks in (1, 2, 4):
            for local in (1, 2):  # with and without accumulation
                with self.subTest(ranks=ranks, local_batch_size=local):
                    run = self.train(f"ranks-{ranks}-{local}", ranks, training__local_batch_size=local, **self.data)
                    self.assert_near(run.validation, one.validation, 1e-5, "validation loss")
        small = self.train("small-batches", 2, training__local_batch_size=4, validation__local_batch_size=1,
                           **self.data)
        self.assert_near(small.validation, one.validation, 1e-5, "validation loss")
        sharded = self.train("no-shard", 2, sharding__plugin="no_shard", **self.data)
        self.assert_near(sharded.validation, one.validation, 1e-5, "validation loss")

    def test_leaves_the_training_alone(self):
        with_it = self.train("with", training__shuffle=True, **self.data)
        without = self.train("without", training__shuffle=True, validation__enable=False)
        self.assertEqual(with_it.losses, without.losses)
        frozen = self.train("constant", optimizer__lr=0.0, **self.data)
        self.assertEqual(len(set(frozen.validation.values())), 1, "the same batches every time")

    def test_batches_that_do_not_divide(self):
        run = self.train("uneven", code=2, validation__local_batch_size=3, **self.data)
        self.assertRegex(run.err, r"uneven\.toml:\d+:\d+: \[validation\] local_batch_size 3 does not divide the 4 ")


if __name__ == "__main__":
    unittest.main(verbosity=2)

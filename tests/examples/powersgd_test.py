"""examples/powersgd against no_shard: bytes, loss, resume, a skipped step, a loss scale."""
import math
import unittest

import numpy as np

import example
import tool
from example import all_reduce_bytes, numel, plugin


class PowerSgd(example.ExampleTest):
    def compressed_bytes(self, world, rank, least):
        sent = 0
        for unit in example.shapes_by_unit(self.shape):
            first = second = 0
            for shape in unit:
                n, m = shape[0], numel(shape) // shape[0]
                if len(shape) > 1 and n * m >= least and (n + m) * rank < n * m:
                    first, second = first + n * rank, second + m * rank
                else:
                    first += n * m
            sent += all_reduce_bytes(4 * first, world) + all_reduce_bytes(4 * second, world)
        return sent

    def test_bytes_are_those_of_the_formula(self):
        whole = sum(all_reduce_bytes(4 * n, 2) for n in example.unit_sizes(self.shape))
        for rank, least in ((1, 1), (4, 4096), (8, 5000)):
            with self.subTest(rank=rank, min_numel=least):
                run = self.train_with(f"bytes{rank}", plugin("powersgd"), 2, training__steps=6,
                                      options={"rank": rank, "min_numel": least, "start_step": 4})
                rows = [r["sent_bytes"] for r in run.rows]
                small = self.compressed_bytes(2, rank, least)
                self.assertEqual([b - a for a, b in zip(rows, rows[1:])], [whole] * 2 + [small] * 3)
                print(f"rank {rank}: {small} of {whole} bytes a step, 1/{whole / small:.1f}")

    def test_loss_stays_near_no_shard(self):
        plain = self.train_with("loss-plain", "no_shard", 2, training__steps=100)
        run = self.train_with("loss", plugin("powersgd"), 2, training__steps=100,
                              options={"rank": 8, "start_step": 10})
        print(f"loss {self.late_loss(run):.4f}, no_shard {self.late_loss(plain):.4f}, first {plain.losses[1]:.4f}")
        self.assertLess(self.late_loss(plain), plain.losses[1] - 1.5)
        self.assertLess(abs(self.late_loss(run) - self.late_loss(plain)), 0.1)
        self.assertEqual([run.losses[s] for s in range(1, 10)], [plain.losses[s] for s in range(1, 10)])

    def test_resume_is_the_same_run(self):
        changes = dict(options={"rank": 2, "start_step": 3}, lr_scheduler__total_steps=10, checkpoint__enable=True)
        straight = self.train_with("straight", plugin("powersgd"), 2, training__steps=10, **changes)
        self.train_with("parts", plugin("powersgd"), 2, training__steps=6, **changes)
        again = self.train_with("parts", plugin("powersgd"), 2, training__steps=10, checkpoint__resume="auto",
                                **changes)
        self.assertEqual(again.losses, straight.losses)
        self.assert_same_tensors(*(tool.read_snapshot(tool.snapshot_path(r.folder, 10)) for r in (again, straight)),
                                 "weights")

    def test_a_loss_scale_changes_nothing(self):
        runs = [self.train_with(f"scale{exponent}", plugin("powersgd"), 2, training__steps=10,
                                options={"start_step": 2}, precision__plugin=example.SCALED,
                                precision__options__exponent=exponent) for exponent in (0, 12)]
        self.assert_near(runs[0].losses, runs[1].losses, 1e-5, "loss")

    def test_one_rank_is_no_shard(self):
        runs = [self.train_with(f"alone-{k}", name, 1, training__steps=4, options=options)
                for k, (name, options) in enumerate((("no_shard", {}), (plugin("powersgd"), {"start_step": 1})))]
        self.assertEqual(runs[0].losses, runs[1].losses)


POISON = 96  # a token whose embedding is infinite


class Skipped(tool.RunTest):
    """The third step has a gradient on rank 1 that is not finite: what it left in error and Q must not stay."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tool.write_model(cls.root + "/poisoned", edit=lambda t: t["model.embed_tokens.weight"][POISON].fill(np.inf))
        tokens = tool.fixture_tokens(8 * 64 + 1) % POISON
        tokens[2 * 64 + 40] = POISON
        tool.write_tokens(cls.root + "/poisoned.bin", tokens)

    def run_it(self, name, **changes):
        return self.train(name, 2, training__nan_policy="skip", model__hf_assets_path=self.root + "/poisoned",
                          training__dataset_path=self.root + "/poisoned.bin", checkpoint__interval=1,
                          sharding__plugin=plugin("powersgd"), sharding__options__start_step=1,
                          sharding__options__rank=2, sharding__options__min_numel=100, **changes)

    def test_the_step_after_starts_afresh_also_when_resumed(self):
        run = self.run_it("skips", checkpoint__keep_latest_k=0)
        self.assertEqual([r["step"] for r in run.rows if r.get("skipped")], [3])
        self.assertTrue(all(math.isfinite(run.losses[s]) for s in run.losses if s != 3))
        self.assertTrue(all(math.isfinite(r["grad_norm"]) for r in run.rows if r["step"] > 3))
        for step in (2, 3, 4):
            with self.subTest(resumed_after=step):
                again = self.run_it(f"again{step}", checkpoint__resume=tool.snapshot_path(run.folder, step))
                self.assertEqual(again.losses, {s: l for s, l in run.losses.items() if s > step})

    def errors(self, folder, step):
        path = tool.snapshot_path(folder, step)
        return [tool.read_snapshot(path, tool.PLUGIN, f"error.rank{r}.unit{u}.flat0")["powersgd"]
                for r in range(2) for u in range(4)]

    def test_nothing_of_the_skipped_step_is_in_the_error(self):
        run = self.run_it("errors", checkpoint__keep_latest_k=0)
        self.assertFalse(all(np.isfinite(e).all() for e in self.errors(run.folder, 3)), "it was poisoned")
        for error in self.errors(run.folder, 4):
            self.assertTrue(np.isfinite(error).all() and (error != 0).any())


if __name__ == "__main__":
    unittest.main(verbosity=2)

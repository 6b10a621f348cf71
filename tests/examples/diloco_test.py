"""examples/diloco against its formula: the islands' own runs are made one by one and brought together in numpy."""
import glob
import os
import unittest

import numpy as np
from safetensors.numpy import save_file

import example
import tool
from example import plugin

SEQUENCE, BATCH = 16, 2


def file_bytes(path):
    return {os.path.basename(p): tool.read_text(p, "rb") for p in glob.glob(path + "/*.safetensors")}


class Formula(tool.RunTest):
    """In float64. The inner optimizer keeps nothing (beta 0; eps makes it nearly SGD), so that a round of an island is
    a run of its own that starts from the common weights."""

    settings = {"precision.options.dtype": "float64", "optimizer.beta1": 0.0, "optimizer.beta2": 0.0,
                "optimizer.eps": 1.0, "optimizer.lr": 0.3, "optimizer.weight_decay": 0.01, "training.max_norm": 0.5,
                "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0.0, "training.seq_len": SEQUENCE,
                "training.local_batch_size": BATCH}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = tool.fixture_tokens()
        cls.tokens[::SEQUENCE] = 5  # sequences share their ends, so that any of them can follow each other
        tool.write_tokens(cls.root + "/tokens.bin", cls.tokens)
        cls.write_weights("start", lambda name, w: w.astype(np.float64))

    @classmethod
    def write_weights(cls, name, value):
        weights = {}
        tool.write_model(f"{cls.root}/{name}", edit=lambda t: weights.update({k: value(k, w) for k, w in t.items()}))
        save_file(weights, f"{cls.root}/{name}/model.safetensors", metadata={"format": "pt"})
        return weights

    def island_tokens(self, island, islands, size, first_step, steps):
        """The sequences that the ranks of an island see, in order."""
        share = size * BATCH
        starts = [((s * islands + island) * share + k) * SEQUENCE
                  for s in range(first_step, first_step + steps) for k in range(share)]
        return np.concatenate([self.tokens[a:a + SEQUENCE] for a in starts] + [self.tokens[:1]])

    def replay(self, name, shape, rounds, outer):
        """Weights after each round, by the islands' own runs and outer(anchor, mean)."""
        islands, size, every = shape
        weights = self.write_weights("start", lambda name, w: w.astype(np.float64))
        for turn in range(rounds):
            self.write_weights(f"{name}-from", lambda k, w: weights[k])
            ends = []
            for island in range(islands):
                alone = f"{name}-{turn}-{island}"
                tool.write_tokens(f"{self.root}/{alone}.bin",
                                  self.island_tokens(island, islands, size, turn * every, every))
                run = self.train(alone, size, training__steps=every, model__hf_assets_path=f"{self.root}/{name}-from",
                                 training__dataset_path=f"{self.root}/{alone}.bin",
                                 sharding__plugin="full_shard" if size > 1 else "no_shard")
                ends.append(tool.read_snapshot(tool.snapshot_path(run.folder, every)))
            mean = {k: sum(e[k] for e in ends) / islands for k in weights}
            self.assertTrue(any((mean[k] != ends[0][k]).any() for k in mean), "the islands differ")
            weights = outer(weights, mean)
            yield turn, weights

    def outer_run(self, name, shape, rounds, **options):
        islands, size, every = shape
        options = {f"sharding__options__{k}": v for k, v in {"island_size": size, "every": every, **options}.items()}
        return self.train(name, islands * size, training__steps=every * rounds, checkpoint__interval=every,
                          model__hf_assets_path=self.root + "/start", sharding__plugin=plugin("diloco"), **options)

    def hold(self, got, want, bound, what):
        self.assertEqual(got.keys(), want.keys())
        for k in got:
            self.assertLess(np.abs(got[k] - want[k]).max() / np.abs(want[k]).max(), bound, f"{what}: {k}")

    def test_plain_sgd_with_lr_1_is_averaging(self):
        """Bit for bit in the first round. After it the moments, which start from 0 in an island's own run, are the
        gradient up to rounding only."""
        for shape in ((2, 1, 1), (2, 1, 3), (2, 2, 1)):
            with self.subTest(islands_size_every=shape):
                name = "mean%d%d%d" % shape
                run = self.outer_run(name, shape, 2, outer_lr=1.0, outer_momentum=0.0)
                for turn, want in self.replay(name, shape, 2, lambda anchor, mean: mean):
                    got = tool.read_snapshot(tool.snapshot_path(run.folder, shape[2] * (turn + 1)))
                    if turn == 0:
                        self.assert_same_tensors(got, want, "first round")
                    self.hold(got, want, 1e-14, f"round {turn}")

    def follows(self, name, nesterov):
        lr, beta, velocity = 0.7, 0.9, {}

        def outer(anchor, mean):
            delta = {k: anchor[k] - mean[k] for k in anchor}
            for k in delta:
                velocity[k] = beta * velocity.get(k, 0) + delta[k]
            step = {k: delta[k] + beta * velocity[k] if nesterov else velocity[k] for k in anchor}
            return {k: anchor[k] - lr * step[k] for k in anchor}

        run = self.outer_run(name, (2, 1, 3), 3, outer_lr=lr, outer_momentum=beta, nesterov=nesterov)
        for turn, want in self.replay(name, (2, 1, 3), 3, outer):
            got = tool.read_snapshot(tool.snapshot_path(run.folder, 3 * (turn + 1)))
            self.hold(got, want, 1e-14, f"round {turn}")

    def test_three_rounds_follow_nesterov(self):
        self.follows("nesterov", True)

    def test_three_rounds_follow_plain_momentum(self):
        self.follows("momentum", False)


class Diloco(example.ExampleTest):
    def test_resume_in_the_middle_of_a_round(self):
        for name, options in (("plain", {}), ("streaming", {"streaming": True}), ("late", {"delay": 2, "mix": 0.5}),
                              ("islands", {"island_size": 2})):
            with self.subTest(name):
                changes = dict(options={"every": 3, **options}, checkpoint__enable=True, lr_scheduler__total_steps=8)
                world = 4 if name == "islands" else 2
                straight = self.train_with(name + "-straight", plugin("diloco"), world, training__steps=8, **changes)
                self.train_with(name, plugin("diloco"), world, training__steps=4, **changes)
                again = self.train_with(name, plugin("diloco"), world, training__steps=8, checkpoint__resume="auto",
                                        **changes)
                self.assertEqual(again.losses, straight.losses)
                ours, theirs = (file_bytes(tool.snapshot_path(r.folder, 8)) for r in (again, straight))
                self.assertEqual(ours.keys(), theirs.keys())
                for file in ours:
                    self.assertEqual(ours[file], theirs[file], f"{file} of step 8")

    def test_bytes_only_every_some_steps(self):
        run = self.train_with("bytes", plugin("diloco"), 2, options={"every": 4}, training__steps=12)
        rows = {r["step"]: r["sent_bytes"] for r in run.rows if "sent_bytes" in r}
        once = sum(example.all_reduce_bytes(4 * n, 2) for n in example.unit_sizes(self.shape))
        steps = {s: rows[s] - rows[s - 1] for s in range(2, 13)}
        self.assertEqual(steps, {s: once if s % 4 == 0 else 0 for s in steps})
        plain = self.train_with("bytes-plain", "no_shard", 2, training__steps=3)
        self.assertEqual(self.sent(plain), once)
        print(f"bytes a step: {once / 4:.0f} with every = 4, {once} with no_shard")

    def test_loss_goes_down_near_that_of_no_shard(self):
        run = self.train_with("loss", plugin("diloco"), 2, options={"every": 10}, training__steps=200)
        plain = self.train_with("loss-plain", "no_shard", 2, training__steps=200)
        print(f"loss {self.late_loss(run):.4f}, no_shard {self.late_loss(plain):.4f}, first {plain.losses[1]:.4f}")
        self.assertLess(self.late_loss(run), run.losses[1] - 2)
        self.assertLess(self.late_loss(run) - self.late_loss(plain), 0.2)

    def test_what_it_cannot_do_is_refused(self):
        for options, told in (({"every": 3, "delay": 3}, r"delay must be less than every = 3 \(got 3\)"),
                              ({"island_size": 3}, r"island_size must divide the 2 ranks of the run \(got 3\)"),
                              ({"outer_momentum": 1.5}, "outer_momentum")):
            with self.subTest(**options):
                run = self.train_with("refused", plugin("diloco"), 2, options=options, code=2)
                self.assertRegex(run.err, told)


if __name__ == "__main__":
    unittest.main(verbosity=2)

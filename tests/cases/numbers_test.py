"""C3, C9, C14, C20, C30, C33: one run, whatever the ranks, the split of the batch and the strategy."""
import math
import unittest

import torch

import fixtures
from fixtures import LL, TOKENS, reference, weights_apart, write_ll, write_tokens

DOUBLE = {"precision__options__dtype": "float64"}
STORED = {"checkpoint__enable": True, "checkpoint__interval": 1000000}


class Numbers(fixtures.Case):
    def weights(self, outcome, step, **which):
        return fixtures.shale_run.snapshot(outcome.folder, step, **which)

    def hold_same_run(self, ours, theirs, bound=1e-11):
        self.hold_equal(ours, theirs, bound)
        steps = len(self.metrics(ours))
        self.assertLess(weights_apart(self.weights(ours, steps), self.weights(theirs, steps)), bound)

    def test_C03_the_split_of_a_batch_does_not_matter(self):
        for dtype, bound in (("float64", 1e-11), ("float32", 1e-5)):
            split = lambda nproc, micro: self.trained(nproc, training__local_batch_size=micro,
                                                      training__global_batch_size=4, **STORED,
                                                      precision__options__dtype=dtype)
            at_once = split(1, 4)
            expected = plain_loss(self.ll, range(4))
            self.assertLess(fixtures.relative(self.losses(at_once)[0], expected), 1e-5)
            for nproc, micro in ((2, 2), (2, 1), (1, 1)):
                with self.subTest(dtype=dtype, nproc=nproc, micro=micro):
                    other = split(nproc, micro)
                    self.hold_equal(other, at_once, bound)
                    apart = weights_apart(self.weights(other, 8), self.weights(at_once, 8))
                    self.assertLess(apart, bound if dtype == "float64" else 5e-5)

    def test_C09_bf16_stays_near_float32(self):
        exact = self.losses(self.trained())
        for mode in ("compute", "storage"):
            losses = self.losses(self.trained(precision__plugin="bf16_mixed", precision__options__mode=mode))
            apart = max(abs(a - b) for a, b in zip(losses, exact))
            self.assertLess(apart, 2e-2)
            self.assertGreater(apart, 1e-7, "nothing was rounded to bfloat16")

    def test_C14_the_norm_is_that_of_the_whole_gradient(self):
        settings = {"training__max_norm": 0.1, "training__global_batch_size": 4, **DOUBLE, **STORED}
        alone = self.trained(1, training__local_batch_size=4, **settings)
        self.assertGreater(self.metrics(alone)[0]["grad_norm"], 0.1)
        for plugin, nproc in (("full_shard", 2), ("no_shard", 2), ("full_shard", 4), ("no_shard", 4)):
            with self.subTest(plugin=plugin, nproc=nproc):
                other = self.trained(nproc, training__local_batch_size=4 // nproc, sharding__plugin=plugin, **settings)
                self.hold_same_run(other, alone)

    def test_C14_after_clipping_the_norm_is_the_limit(self):
        # After one step Adam's first moment is (1 - beta1) times the gradient it was given.
        for plugin in ("full_shard", "no_shard"):
            outcome = self.trained(training__max_norm=0.1, training__steps=1, sharding__plugin=plugin,
                                   optimizer__beta1=0.5, **DOUBLE, **STORED)
            moments = self.weights(outcome, 1, role=2, key="exp_avg")
            norm = math.sqrt(sum((m.double() / 0.5).square().sum().item() for m in moments.values()))
            self.assertLess(fixtures.relative(norm, 0.1), 1e-6)

    def odd(self):
        return write_ll(self.place(), reference.Shape(ffn=57, layers=2))

    def test_C20_sizes_that_do_not_divide(self):
        folder = self.odd()
        settings = {"model__hf_assets_path": folder, "training__global_batch_size": 30, **DOUBLE, **STORED}
        alone = self.trained(1, training__local_batch_size=30, training__steps=10, **settings)
        shapes = {n: w.shape for n, w in reference.random_weights(reference.Shape(ffn=57, layers=2), 1).items()}
        for nproc in (2, 3, 5):
            with self.subTest(nproc=nproc):
                straight = self.trained(nproc, training__local_batch_size=30 // nproc, training__steps=10, **settings)
                self.hold_same_run(straight, alone)
                self.assertEqual({n: w.shape for n, w in self.weights(straight, 10).items()}, shapes)
                self.hold_resumed(straight, nproc, settings)

    def hold_resumed(self, straight, nproc, settings):
        """5 steps, a snapshot, 5 more: the same to the last bit."""
        config = self.config(self.place(), training__local_batch_size=30 // nproc, training__steps=5, **settings)
        for more in ([], ["--training.steps=10", "--checkpoint.resume=auto"]):
            outcome = self.shale(config, nproc, *more)
            self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(self.losses(outcome), self.losses(straight))
        for role, key in ((1, "weight"), (2, "exp_avg"), (2, "exp_avg_sq")):
            ours, theirs = (self.weights(o, 10, role=role, key=key) for o in (outcome, straight))
            self.assertTrue(all(torch.equal(ours[n], theirs[n]) for n in theirs), key)

    def test_C30_replicas_learn_from_each_other(self):
        for micro_steps in (1, 2):
            for at in ("micro_step", "boundary"):
                with self.subTest(micro_steps=micro_steps, reduce_at=at):
                    settings = {"training__global_batch_size": 4 * micro_steps, **DOUBLE, **STORED}
                    alone = self.trained(1, training__local_batch_size=4, **settings)
                    replicas = self.trained(2, sharding__plugin="no_shard", sharding__options__reduce_at=at,
                                            **settings)
                    self.hold_same_run(replicas, alone)
                    self.hold_same_run(self.trained(2, sharding__options__reduce_at=at, **settings), alone)

    def long(self, weights):
        """LL with 4,096 positions and base 500,000, from file or from scratch."""
        folder = write_ll(self.place(), max_position_embeddings=4096, rope_theta=500000.0)
        if not weights:
            fixtures.os.remove(folder + "/model.safetensors")
        return folder

    def test_C33_more_positions_than_the_model_was_made_for(self):
        self.hold_warning(self.trained(training__seq_len=65, training__steps=1), "seq_len 65", "64 positions")

    def means(self, folder, lengths, nproc, **changes):
        """Mean losses of the first n positions of one sequence that every rank is given."""
        out = []
        for n in lengths:
            path = write_tokens(self.place() + "/tokens.bin", TOKENS[:n] * nproc + TOKENS[n:n + 1])
            run = self.trained(nproc, model__hf_assets_path=folder, training__dataset_path=path, training__seq_len=n,
                               training__local_batch_size=1, training__steps=1, **changes)
            out.append(self.losses(run)[0])
        return out

    def test_C33_later_positions_are_no_worse_in_bf16(self):
        lengths = (128, 256, 384, 512)
        for weights in (True, False):
            folder = self.long(weights)
            exact = self.means(folder, lengths, 1)
            rough = self.means(folder, lengths, 2, precision__plugin="bf16_mixed")
            sums = [[n * mean for n, mean in zip(lengths, means)] for means in (exact, rough)]
            before = [[0, *s[:-1]] for s in sums]
            parts = [[(a - b) / 128 for a, b in zip(s, t)] for s, t in zip(sums, before)]
            apart = [abs(a - b) for a, b in zip(*parts)]
            with self.subTest(from_file=weights):
                self.assertLess(max(apart), 2e-2)
                self.assertLess(apart[-1], 10 * max(apart[0], 1e-4), f"the error grows: {apart}")


def plain_loss(folder, rows):
    """Mean over all targets of the sequences with these numbers, by plain PyTorch."""
    model = reference.Llama(LL)
    model.load_state_dict(fixtures.load_file(folder + "/model.safetensors"))
    batch = torch.tensor([TOKENS[i * 16:i * 16 + 17] for i in rows])
    with torch.no_grad():
        return reference.loss_sum(model, batch[:, :-1], batch[:, 1:]).item() / batch[:, 1:].numel()


if __name__ == "__main__":
    unittest.main(verbosity=2)

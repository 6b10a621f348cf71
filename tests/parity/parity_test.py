"""Twenty steps against PyTorch's FSDP2 and DDP and one unsharded process, live, on the same weights and batches; and
runs of shale against each other. table_test.py holds all strategies, formats and worlds over fewer steps.

Bounds: float64 1e-11 relative in loss, gradient norm and final weights. float32: loss 1e-5; gradient norm 1e-6 of the
float64 sum of a run in the same precision and 2e-4 of FSDP2's own, whose float32 sum is off.
"""
import itertools
import os
import sys
import unittest

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference as ref
from scene import Scene, relative, weights_apart, worst

GLOBAL_BATCH = 12
EITHER = ["micro_step", "boundary"]


def training(world, micro_steps=1, **extra):
    return ref.Training(micro_batch=GLOBAL_BATCH // (world * micro_steps), micro_steps=micro_steps, **extra)


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scene = Scene()
        cls.addClassCleanup(cls.scene.close)
        # The global batch is the same everywhere, so accumulation and ranks change nothing but the order of sums.
        kinds = {2: ["fsdp2", "ddp"], 4: ["fsdp2", "hsdp"]}
        cls.reference = {}
        for dtype in (torch.float64, torch.float32):
            cls.reference["single", 1, dtype] = ref.run(*cls.scene.job("single", training(1, dtype=dtype)))
        for world in kinds:
            names = [(k, world, dtype) for k in kinds[world] for dtype in (torch.float64, torch.float32)]
            jobs = [cls.scene.job(k, training(world, dtype=dtype)) for k, _, dtype in names]
            cls.reference.update(zip(names, ref.run_distributed(world, jobs, cls.scene.folder)))

    def hold(self, ours, theirs, loss=1e-11, norm=1e-11, weights=1e-11):
        self.assertLess(worst(ours[0], theirs[0]), loss, "loss")
        self.assertLess(worst(ours[1], theirs[1]), norm, "gradient norm")
        if weights is not None:
            self.assertLess(weights_apart(ours[2], theirs[2]), weights, "weights")

    def hold_float64(self, strategy, world, theirs, micro_steps=1, mode="none", **options):
        """Every choice of the options, against PyTorch's strategy, if it has it, and one process."""
        for values in itertools.product(*options.values()):
            chosen = dict(zip(options, values))
            with self.subTest(strategy=strategy, world=world, micro_steps=micro_steps, mode=mode, **chosen):
                extra = {f"sharding__options__{k}": v for k, v in chosen.items()}
                name = "-".join(map(str, [strategy, world, micro_steps, mode, *chosen.values()]))
                ours = self.scene.shale(name, world, training(world, micro_steps), sharding__plugin=strategy,
                                        activation_checkpoint__mode=mode, **extra)
                self.hold(ours, self.reference["single", 1, torch.float64])
                if theirs:
                    self.hold(ours, self.reference[theirs, world, torch.float64])

    def test_float64_full_shard(self):
        for world in (2, 4):
            self.hold_float64("full_shard", world, "fsdp2", mode="full")
            self.hold_float64("full_shard", world, "fsdp2", 3, reduce_at=EITHER)
        self.hold_float64("full_shard", 2, "fsdp2")
        self.hold_float64("full_shard", 2, "fsdp2", 3, "full", reduce_at=EITHER)

    def test_float64_no_shard(self):
        self.hold_float64("no_shard", 2, "ddp")
        self.hold_float64("no_shard", 2, "ddp", 3, "full")
        self.hold_float64("no_shard", 4, None)

    def test_float64_kept_weights(self):
        self.hold_float64("shard_grad_op", 2, "fsdp2", 3, "full", reduce_at=EITHER)
        self.hold_float64("shard_grad_op", 4, "fsdp2")
        for strategy in ("zero1", "zero2"):
            self.hold_float64(strategy, 2, None, 3)

    def test_float64_hybrid_strategies(self):
        self.hold_float64("hybrid_shard", 4, "hsdp", shard_size=[2], mode="full")
        self.hold_float64("hybrid_shard", 4, "hsdp", 3, shard_size=[2], replica_at=EITHER, reduce_at=EITHER)
        self.hold_float64("hybrid_shard_zero2", 4, "hsdp", 3, shard_size=[2], replica_at=EITHER)

    def test_the_ends_of_shard_size_are_other_strategies(self):
        few = ref.Training(micro_steps=2, steps=5)
        same = {(1, "hybrid_shard"): "no_shard", (1, "hybrid_shard_zero2"): "no_shard",
                (2, "hybrid_shard"): "full_shard", (2, "hybrid_shard_zero2"): "shard_grad_op",
                (0, "hybrid_shard"): "full_shard", (0, "hybrid_shard_zero2"): "shard_grad_op"}  # 0: one node
        plain = {p: self.scene.shale(f"end_{p}", 2, few, sharding__plugin=p) for p in set(same.values())}
        for (size, strategy), other in same.items():
            with self.subTest(shard_size=size, strategy=strategy):
                ours = self.scene.shale(f"end_{strategy}{size}", 2, few, sharding__plugin=strategy,
                                        sharding__options__shard_size=size)
                self.assert_same_bits(ours, plain[other])

    def assert_same_bits(self, run, other):
        self.assertEqual(run[:2], other[:2])
        self.assertEqual(weights_apart(run[2], other[2]), 0)

    def test_strategies_that_cut_alike_are_one_run(self):
        """The same shards and the same sums: when weights are gathered changes no bit, in any format."""
        for bf16 in (False, True):
            few = ref.Training(micro_steps=3, steps=5, dtype=torch.float32, bf16=bf16)
            runs = [self.scene.shale(f"alike_{p}_{bf16}", 2, few, sharding__plugin=p)
                    for p in ("full_shard", "shard_grad_op", "zero2")]
            for other in runs[1:]:
                with self.subTest(bf16=bf16):
                    self.assert_same_bits(other, runs[0])

    def test_one_rank_is_one_process(self):
        self.hold_float64("full_shard", 1, None)

    def test_a_run_goes_on_under_other_strategies_and_worlds(self):
        relay = (("zero2", 2, 0), ("hybrid_shard", 4, 2), ("zero1", 1, 0), ("hybrid_shard_zero2", 4, 2))
        for k, (strategy, world, size) in enumerate(relay):
            options = {"sharding__options__shard_size": size} if size else {}
            run = self.scene.shale("relay", world, training(world, steps=5 * (k + 1)), checkpoint__resume="auto",
                                   sharding__plugin=strategy, **options)
        self.hold(run, self.reference["single", 1, torch.float64])

    def test_float32(self):
        exact = self.reference["single", 1, torch.float64][1][0]
        for strategy, world, theirs in (("full_shard", 2, "fsdp2"), ("no_shard", 2, "ddp"), ("full_shard", 4, "fsdp2"),
                                        ("hybrid_shard", 4, "hsdp"), ("hybrid_shard_zero2", 4, "hsdp")):
            with self.subTest(strategy=strategy, world=world):
                options = {"sharding__options__shard_size": 2} if strategy.startswith("hybrid") else {}
                ours = self.scene.shale(f"float32_{strategy}{world}", world, training(world, dtype=torch.float32),
                                        sharding__plugin=strategy, **options)
                self.hold(ours, self.reference[theirs, world, torch.float32], 1e-5, 2e-4, None)
                # The first norm is of equal weights: it must match a float64 sum of squares.
                self.assertLess(relative(ours[1][0], exact), 1e-6)
                self.hold(ours, self.reference["single", 1, torch.float32], 1e-5, 2e-4, None)


if __name__ == "__main__":
    unittest.main(verbosity=2)

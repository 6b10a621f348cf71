"""shale against PyTorch's own FSDP2 and DDP and one unsharded process, live, on the same weights and batches.

Bounds: float64 1e-11 relative in loss, gradient norm and final weights. float32: loss 1e-5; gradient norm 1e-6 of the
float64 sum of a run in the same precision and 2e-4 of FSDP2's own, whose float32 sum is off. bfloat16: see BF16_LOSS.
"""
import itertools
import os
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference as ref
import shale_run

torch.set_num_threads(1)
# A bfloat16 value carries 8 bits, so one rounding is 2^-9 = 2e-3 relative at most. Logits of size about 3 round by
# 6e-3, and the loss, a mean of such errors with mixed signs over many tokens, stays within a few roundings.
BF16_LOSS = 4 * 2.0**-8


def relative(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def weights_apart(a, b):
    """Largest difference over all elements, relative to the largest of its tensor."""
    assert set(a) == set(b), sorted(set(a) ^ set(b))
    return max(((a[n].double() - b[n].double()).abs().max() / b[n].double().abs().max()).item() for n in b)


class Parity(unittest.TestCase):
    EITHER = ["micro_step", "boundary"]

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        cls.shape = ref.Shape()
        cls.weights = ref.random_weights(cls.shape, 1)
        ref.write_model(cls.folder + "/hf64", cls.shape, cls.weights)
        ref.write_model(cls.folder + "/hf32", cls.shape, cls.weights, torch.float32)
        i = torch.arange(4097, dtype=torch.int64)
        cls.tokens = (i * i + 3 * i) % cls.shape.vocab
        cls.tokens.to(torch.uint16).numpy().tofile(cls.folder + "/tokens.bin")
        cls.make_references()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def make_references(cls):
        job = lambda kind, training: (kind, cls.shape, training, cls.weights, cls.tokens)
        plain, three = ref.Training(), ref.Training(micro_steps=3)
        single = ref.Training(dtype=torch.float32)
        bf16 = ref.Training(dtype=torch.float32, bf16=True)
        cls.reference = {}
        for world in (2, 4):
            names = [("fsdp2", 1), ("fsdp2", 3), ("ddp", 1), ("fsdp2", "float32"), ("fsdp2", "bf16")]
            jobs = [job("fsdp2", plain), job("fsdp2", three), job("ddp", plain), job("fsdp2", single),
                    job("fsdp2", bf16)]
            kinds = ["fsdp2_keep"] + (["hsdp", "hsdp_keep"] if world == 4 else [])
            names += [(kind, micro_steps) for kind in kinds for micro_steps in (1, 3)]
            jobs += [job(kind, training) for kind in kinds for training in (plain, three)]
            for name, result in zip(names, ref.run_distributed(world, jobs, cls.folder)):
                cls.reference[(world, *name)] = result
            # One process on the joint batch: accumulation changes nothing but the order of sums.
            joint = ref.Training(micro_batch=2 * world)
            cls.reference[(world, "single", 1)] = ref.run(*job("single", joint))
            joint = ref.Training(micro_batch=2 * world, dtype=torch.float32)
            cls.reference[(world, "single", "float32")] = ref.run(*job("single", joint))

    def shale(self, name, world, training=None, **extra):
        training = training or ref.Training()
        double = training.dtype == torch.float64
        settings = {
            "model.hf_assets_path": self.folder + ("/hf64" if double else "/hf32"),
            "training.dataset": "nanogpt", "training.dataset_path": self.folder + "/tokens.bin",
            "training.seq_len": training.seq_len, "training.local_batch_size": training.micro_batch,
            "training.global_batch_size": training.micro_batch * training.micro_steps * world,
            "training.steps": training.steps, "training.shuffle": False, "training.max_norm": training.max_norm,
            "optimizer.lr": training.lr, "optimizer.beta1": training.betas[0], "optimizer.beta2": training.betas[1],
            "optimizer.eps": training.eps, "optimizer.weight_decay": training.weight_decay,
            "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0.0,
            "checkpoint.enable": True, "checkpoint.interval": 1000000, "comm.train_timeout_seconds": 60,
            "sharding.plugin": "full_shard", "precision.plugin": "uniform",
            **{k.replace("__", "."): v for k, v in extra.items()},
        }
        if settings["precision.plugin"] == "uniform":
            settings["precision.options.dtype"] = "float64" if double else "float32"
        folder = os.path.join(self.folder, name)
        shale_run.train(folder, settings, world)
        rows = shale_run.metrics(folder)
        final = shale_run.snapshot(folder, training.steps)
        return [r["loss"] for r in rows], [r["grad_norm"] for r in rows], final

    def hold(self, ours, theirs, loss=1e-11, norm=1e-11, weights=1e-11):
        self.assertEqual(len(ours[0]), len(theirs[0]))
        self.assertLess(max(map(relative, ours[0], theirs[0])), loss, "loss")
        self.assertLess(max(map(relative, ours[1], theirs[1])), norm, "gradient norm")
        if weights is not None:
            self.assertLess(weights_apart(ours[2], theirs[2]), weights, "weights")

    def test_float64_full_shard_equals_fsdp2_and_one_process(self):
        for world in (2, 4):
            for mode in ("none", "full"):
                with self.subTest(world=world, checkpointing=mode):
                    ours = self.shale(f"full{world}{mode}", world, activation_checkpoint__mode=mode)
                    self.hold(ours, self.reference[(world, "fsdp2", 1)])
                    self.hold(ours, self.reference[(world, "single", 1)])

    def test_float64_accumulation_equals_fsdp2(self):
        training = ref.Training(micro_steps=3)
        for world in (2, 4):
            for when in ("micro_step", "boundary"):
                for mode in ("none", "full") if world == 2 else ("none",):
                    with self.subTest(world=world, reduce_at=when, checkpointing=mode):
                        ours = self.shale(f"accum{world}{when}{mode}", world, training,
                                          sharding__options__reduce_at=when, activation_checkpoint__mode=mode)
                        self.hold(ours, self.reference[(world, "fsdp2", 3)])

    def test_float64_no_shard_equals_ddp(self):
        for world in (2, 4):
            for mode in ("none", "full"):
                with self.subTest(world=world, checkpointing=mode):
                    ours = self.shale(f"no_shard{world}{mode}", world, sharding__plugin="no_shard",
                                      activation_checkpoint__mode=mode)
                    self.hold(ours, self.reference[(world, "ddp", 1)])
                    self.hold(ours, self.reference[(world, "single", 1)])

    def test_float64_no_shard_accumulation_equals_fsdp2(self):
        training = ref.Training(micro_steps=3)
        ours = self.shale("no_shard_accum", 2, training, sharding__plugin="no_shard")
        self.hold(ours, self.reference[(2, "fsdp2", 3)])

    def hold_accumulated(self, strategy, world, theirs, **options):
        """Three micro-steps, sums over shard groups and replicas after each of them or at the boundary."""
        training = ref.Training(micro_steps=3)
        for values in itertools.product(*options.values()):
            chosen = dict(zip(options, values))
            with self.subTest(world=world, strategy=strategy, **chosen):
                extra = {f"sharding__options__{k}": v for k, v in chosen.items()}
                name = "-".join([strategy, str(world), *(f"{k}{v}" for k, v in chosen.items())])
                ours = self.shale(name, world, training, sharding__plugin=strategy, **extra)
                self.hold(ours, self.reference[(world, theirs, 3)])

    def test_float64_shard_grad_op_equals_fsdp2_without_reshard(self):
        for world in (2, 4):
            for mode in ("none", "full"):
                with self.subTest(world=world, checkpointing=mode):
                    ours = self.shale(f"grad_op{world}{mode}", world, sharding__plugin="shard_grad_op",
                                      activation_checkpoint__mode=mode)
                    self.hold(ours, self.reference[(world, "fsdp2_keep", 1)])
                    self.hold(ours, self.reference[(world, "single", 1)])
        self.hold_accumulated("shard_grad_op", 2, "fsdp2_keep", reduce_at=self.EITHER)
        self.hold_accumulated("shard_grad_op", 4, "fsdp2_keep", reduce_at=["micro_step"])

    def test_float64_zero1_and_zero2_equal_one_process(self):
        for strategy in ("zero1", "zero2"):
            for world in (2, 4):
                with self.subTest(world=world, strategy=strategy):
                    ours = self.shale(f"{strategy}{world}", world, sharding__plugin=strategy)
                    self.hold(ours, self.reference[(world, "single", 1)])
                self.hold_accumulated(strategy, world, "fsdp2")

    def test_float64_hybrid_strategies_equal_fsdp2_on_a_mesh(self):
        for strategy, theirs in (("hybrid_shard", "hsdp"), ("hybrid_shard_zero2", "hsdp_keep")):
            for mode in ("none", "full"):
                with self.subTest(strategy=strategy, checkpointing=mode):
                    ours = self.shale(f"{strategy}{mode}", 4, sharding__plugin=strategy,
                                      sharding__options__shard_size=2, activation_checkpoint__mode=mode)
                    self.hold(ours, self.reference[(4, theirs, 1)])
                    self.hold(ours, self.reference[(4, "single", 1)])
            self.hold_accumulated(strategy, 4, theirs, shard_size=[2], replica_at=self.EITHER)
        self.hold_accumulated("hybrid_shard", 4, "hsdp", shard_size=[2], reduce_at=["boundary"])

    def test_the_ends_of_shard_size_are_other_strategies(self):
        training = ref.Training(micro_steps=2, steps=5)
        same = {(1, "hybrid_shard"): "no_shard", (1, "hybrid_shard_zero2"): "no_shard",
                (2, "hybrid_shard"): "full_shard", (2, "hybrid_shard_zero2"): "shard_grad_op",
                (0, "hybrid_shard"): "full_shard", (0, "hybrid_shard_zero2"): "shard_grad_op"}  # 0: one node
        plain = {p: self.shale(f"end_{p}", 2, training, sharding__plugin=p) for p in set(same.values())}
        for (size, strategy), other in same.items():
            with self.subTest(shard_size=size, strategy=strategy):
                losses, norms, weights = self.shale(f"end_{strategy}{size}", 2, training, sharding__plugin=strategy,
                                                    sharding__options__shard_size=size)
                self.assertEqual((losses, norms), plain[other][:2])
                self.assertEqual(weights_apart(weights, plain[other][2]), 0)

    def test_strategies_that_cut_alike_are_one_run(self):
        """The same shards and the same sums: when weights are gathered changes no bit, in any format."""
        training = ref.Training(micro_steps=3, steps=5, dtype=torch.float32)
        for precision in ("uniform", "bf16_mixed"):
            runs = [self.shale(f"alike_{p}_{precision}", 2, training, sharding__plugin=p, precision__plugin=precision)
                    for p in ("full_shard", "shard_grad_op", "zero2")]
            for other in runs[1:]:
                with self.subTest(precision=precision):
                    self.assertEqual(other[:2], runs[0][:2])
                    self.assertEqual(weights_apart(other[2], runs[0][2]), 0)

    def test_hybrid_strategies_in_float32_and_bf16(self):
        training = ref.Training(dtype=torch.float32)
        exact = self.reference[(4, "single", "float32")]
        for strategy in ("hybrid_shard", "hybrid_shard_zero2"):
            how = {"sharding__plugin": strategy, "sharding__options__shard_size": 2}
            with self.subTest(strategy=strategy):
                self.hold(self.shale(f"{strategy}_float32", 4, training, **how), exact, 1e-5, 2e-4, None)
                ours = self.shale(f"{strategy}_bf16", 4, training, precision__plugin="bf16_mixed", **how)
                self.assertLess(max(map(relative, ours[0], exact[0])), BF16_LOSS)

    def test_one_two_and_four_ranks_are_one_run(self):
        runs = []
        for world in (1, 2, 4):
            training = ref.Training(micro_batch=8 // world)
            runs.append(self.shale(f"ranks{world}", world, training))
        self.hold(runs[1], runs[0])
        self.hold(runs[2], runs[0])
        self.hold(runs[0], self.reference[(4, "single", 1)])

    def test_a_run_goes_on_under_other_strategies_and_worlds(self):
        relay = (("zero2", 2, 0), ("hybrid_shard", 4, 2), ("zero1", 1, 0), ("hybrid_shard_zero2", 4, 2))
        for k, (strategy, world, size) in enumerate(relay):
            training = ref.Training(micro_batch=8 // world, steps=5 * (k + 1))
            options = {"sharding__options__shard_size": size} if size else {}
            run = self.shale("relay", world, training, checkpoint__resume="auto", sharding__plugin=strategy, **options)
        self.hold(run, self.reference[(4, "single", 1)])

    def test_float32_full_shard(self):
        for world in (2, 4):
            with self.subTest(world=world):
                training = ref.Training(dtype=torch.float32)
                ours = self.shale(f"float32_{world}", world, training)
                self.hold(ours, self.reference[(world, "fsdp2", "float32")], 1e-5, 2e-4, None)
                # The first norm is of equal weights: it must match a float64 sum of squares.
                truth = self.reference[(world, "single", 1)][1][0]
                self.assertLess(relative(ours[1][0], truth), 1e-6)
                self.hold(ours, self.reference[(world, "single", "float32")], 1e-5, 2e-4, None)

    def test_bf16_mixed_stays_near_fsdp2(self):
        training = ref.Training(dtype=torch.float32)
        for mode in ("compute", "storage"):
            with self.subTest(mode=mode):
                ours = self.shale(f"bf16_{mode}", 2, training, precision__plugin="bf16_mixed",
                                  precision__options__mode=mode)
                theirs = self.reference[(2, "fsdp2", "bf16")]
                apart = max(map(relative, ours[0], theirs[0]))
                self.assertLess(apart, BF16_LOSS)
                exact = self.reference[(2, "single", "float32")]
                self.assertLess(max(map(relative, ours[0], exact[0])), BF16_LOSS)
                self.assertGreater(max(map(relative, ours[0], exact[0])), 1e-7, "nothing was rounded to bfloat16")


if __name__ == "__main__":
    unittest.main(verbosity=2)

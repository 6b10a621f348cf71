"""Strategies whose ends meet, and options that must not change a number: losses and final weights, to the bit."""
import unittest

import tool

STEPS = 4
RANKS = 4


class Strategies(tool.RunTest):
    settings = {"training.steps": STEPS, "training.global_batch_size": RANKS * 4}  # two micro-steps

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tool.write_model(cls.root + "/deep", layers=5)
        cls.settings = Strategies.settings | {"model.hf_assets_path": cls.root + "/deep"}

    runs = {}

    def run_of(self, plugin, **options):
        name = "-".join([plugin, *(f"{k}-{v}" for k, v in options.items())])
        changes = {f"sharding__options__{k}": v for k, v in options.items()}
        if name not in self.runs:
            self.runs[name] = self.train(name, RANKS, sharding__plugin=plugin, **changes)
        return self.runs[name]

    def assert_same_run(self, a, b, what):
        self.assertEqual(len(a.losses), STEPS)
        self.assertEqual(a.losses, b.losses, what)
        ends = [tool.read_snapshot(tool.snapshot_path(r.folder, STEPS)) for r in (a, b)]
        self.assert_same_tensors(*ends, what)

    def test_ends_meet(self):
        whole, none = self.run_of("full_shard"), self.run_of("no_shard")
        keeps = self.run_of("shard_grad_op")
        self.assert_same_run(keeps, whole, "keeping weights changes no number")
        for plugin in ("hybrid_shard", "mics"):
            self.assert_same_run(self.run_of(plugin, shard_size=RANKS), whole, plugin + " over all ranks")
            self.assert_same_run(self.run_of(plugin, shard_size=1), none, plugin + " of one rank")
        self.assert_same_run(self.run_of("hybrid_shard_zero2", shard_size=RANKS), keeps, "hybrid_shard_zero2")
        for size in (1, 2, RANKS):
            run = self.run_of("full_shard", reshard_size=size)
            self.assert_same_run(run, whole, f"reshard_size {size}")
            sent = [r.rows[-1]["sent_bytes"] for r in (keeps, run, whole)]
            self.assertLessEqual(sent[0], sent[1])
            self.assertLessEqual(sent[1], sent[2])
            self.assertEqual((sent[0] == sent[1], sent[1] == sent[2]), (size == 1, size == RANKS), sent)

    def test_pieces_and_own_gathers_of_a_narrow_wire(self):
        changes = {"precision__plugin": "bf16_mixed", "precision__options__mode": "storage",
                   "activation_checkpoint__mode": "full"}
        whole = self.train("narrow", RANKS, **changes)
        for name, plugin, option in (("pieces", "full_shard", "reshard_size"), ("levels", "mics", "shard_size")):
            run = self.train("narrow-" + name, RANKS, sharding__plugin=plugin,
                             **changes, **{f"sharding__options__{option}": 2 if name == "pieces" else RANKS})
            self.assert_same_run(run, whole, name)

    def test_small_units_may_stay_whole(self):
        split = self.run_of("full_shard")
        some = self.run_of("full_shard", min_shard_numel=3000)  # only layers are larger
        self.assert_near(some.losses, split.losses, 1e-6, "min_shard_numel")
        ends = [tool.read_snapshot(tool.snapshot_path(r.folder, STEPS)) for r in (some, split)]
        self.assertEqual(ends[0].keys(), ends[1].keys())

    def test_joined_layers_train_alike_and_share_snapshots(self):
        for mode in ("none", "full"):
            changes = dict(activation_checkpoint__mode=mode, sharding__plugin="full_shard")
            single = self.train(f"single-{mode}", RANKS, **changes)
            joined = self.train(f"joined-{mode}", RANKS, sharding__options__layers_per_gather=2, **changes)
            self.assert_same_run(joined, single, f"layers_per_gather, {mode}")
            self.assertLess(joined.rows[-1]["gathers"], single.rows[-1]["gathers"])
        half = self.train("half", RANKS, sharding__options__layers_per_gather=2,
                          **changes | {"training__steps": 2, "lr_scheduler__total_steps": STEPS})
        rest = self.train("rest", RANKS, checkpoint__resume=tool.snapshot_path(half.folder, 2), **changes)
        self.assertEqual(rest.losses, {k: v for k, v in single.losses.items() if k > 2})

    def test_what_cannot_be_is_refused(self):
        cases = {"reshard_size": ("full_shard", dict(reshard_size=3), "must divide the number of ranks, 4 (got 3)"),
                 "mics": ("mics", dict(hierarchical="true"), "hierarchical must not be \"true\" here")}
        for name, (plugin, options, text) in cases.items():
            changes = {f"sharding__options__{k}": v for k, v in options.items()}
            done = self.train("refused-" + name, RANKS, code=2, sharding__plugin=plugin, **changes)
            self.assertIn(text, done.err)


if __name__ == "__main__":
    unittest.main()

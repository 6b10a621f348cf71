"""Parameters that do not train. C13."""
import unittest

import tool

FROZEN = ["model.embed_tokens.*", "model.layers.0.*"]


def is_frozen(name):
    return name.startswith(("model.embed_tokens.", "model.layers.0."))


class FrozenC13(tool.RunTest):
    settings = {"training.steps": 5, "optimizer.weight_decay": 0.1}

    def weights(self, run, step=5):
        return tool.read_snapshot(tool.snapshot_path(run.folder, step))

    def test_frozen_weights_stay_bit_identical_and_have_no_optimizer_state(self):
        before = self.weights(self.train("before", optimizer__lr=0.0, training__steps=1), 1)
        for sharding in ("full_shard", "no_shard"):
            with self.subTest(sharding=sharding):
                run = self.train("frozen-" + sharding, model__frozen=FROZEN, sharding__plugin=sharding)
                after = self.weights(run)
                frozen = {n for n in after if is_frozen(n)}
                self.assertEqual(len(frozen), 10)
                for name in after:
                    self.assertEqual(name in frozen, (after[name] == before[name]).all(), name)
                for key in ("exp_avg", "exp_avg_sq"):
                    moments = tool.read_snapshot(tool.snapshot_path(run.folder, 5), tool.OPTIMIZER, key)
                    self.assertEqual(set(moments), set(after) - frozen)
                text = self.shale("checkpoint", "inspect", tool.snapshot_path(run.folder, 5)).stdout
                self.assertIn("optimizer/lm_head.weight/step", text)
                self.assertNotIn("optimizer/model.embed_tokens.weight/step", text)

    def test_trainable_weights_equal_the_run_on_one_rank(self):
        one = self.train("one", 1, model__frozen=FROZEN, training__local_batch_size=4)
        two = self.train("two", 2, model__frozen=FROZEN)
        self.assert_near(two.losses, one.losses, 1e-5, "2 ranks and 1")
        ours, theirs = self.weights(two), self.weights(one)
        for name in ours:
            self.assertLess(abs(ours[name] - theirs[name]).max(), 5e-5, name)

    def test_resume_with_everything_trainable(self):
        first = self.train("part", model__frozen=FROZEN, lr_scheduler__total_steps=10)
        snapshot = tool.snapshot_path(first.folder, 5)
        second = self.train("all", training__steps=10, checkpoint__resume=snapshot)
        self.assertRegex(second.err, r"no optimizer state for 10 parameter\(s\): model\.embed_tokens\.weight, model\."
                                     r"layers\.0\..*their moments start at zero")
        before, after = self.weights(first), self.weights(second, 10)
        for name in after:
            self.assertFalse((after[name] == before[name]).all(), name)
        inspect = self.shale("checkpoint", "inspect", tool.snapshot_path(second.folder, 10)).stdout
        self.assertRegex(inspect, r"optimizer/lm_head\.weight/step +value +10\n")
        self.assertRegex(inspect, r"optimizer/model\.embed_tokens\.weight/step +value +5\n")
        # And the other way: what is frozen now keeps no state, without a word of complaint.
        third = self.train("part-again", training__steps=12, model__frozen=FROZEN,
                           checkpoint__resume=tool.snapshot_path(second.folder, 10))
        self.assertEqual(sorted(third.losses), [11, 12])

    def test_parts_that_share_no_trainable_parameter(self):
        first = self.train("left", model__frozen=FROZEN, lr_scheduler__total_steps=10)
        others = ["model.layers.1.*", "model.norm.*", "lm_head.*"]
        second = self.train("right", training__steps=10, model__frozen=others,
                            checkpoint__resume=tool.snapshot_path(first.folder, 5))
        self.assertIn("no optimizer state for 10 parameter(s)", second.err)

    def test_a_single_norm_vector_trains(self):
        alone = ["model.embed_tokens.*", "model.layers.0.*", "model.layers.1.*", "lm_head.*"]
        before = self.weights(self.train("norm-before", optimizer__lr=0.0, training__steps=1), 1)
        runs = {}
        for ranks, sharding in ((1, "full_shard"), (2, "full_shard"), (4, "full_shard"), (2, "no_shard")):
            run = self.train(f"norm-{ranks}-{sharding}", ranks, model__frozen=alone, sharding__plugin=sharding,
                             training__local_batch_size=4 // ranks)
            runs[ranks, sharding] = run
            after = self.weights(run)
            changed = [n for n in after if (after[n] != before[n]).any()]
            self.assertEqual(changed, ["model.norm.weight"])
            self.assert_near(run.losses, runs[1, "full_shard"].losses, 1e-5, f"{ranks} {sharding}")

    def test_nothing_to_train(self):
        run = self.train("nothing", code=2, model__frozen=["*"])
        self.assertIn("frozen leaves no parameter to train", run.err)
        self.assertIn("nothing.toml:", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)

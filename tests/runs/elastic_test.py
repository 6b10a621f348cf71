"""A run goes on with another number of ranks, strategy or precision: the same global batches, the same losses."""
import unittest

import tool

RANKS = (1, 2, 3, 4, 8)
STRATEGIES = ("full_shard", "no_shard", "shard_grad_op", "zero1", "zero2", "hybrid_shard", "mics")
BATCH, HALF, STEPS = 24, 3, 6


def strategy(number, ranks):
    """One of them, changed from call to call; groups of two where the ranks allow it."""
    name = STRATEGIES[number % len(STRATEGIES)]
    if name not in ("hybrid_shard", "mics"):
        return {"sharding__plugin": name}
    return {"sharding__plugin": name, "sharding__options__shard_size": 2 if ranks % 2 == 0 else ranks}


class Elastic(tool.RunTest):
    settings = {"training.global_batch_size": BATCH, "training.local_batch_size": 1, "training.steps": HALF,
                "lr_scheduler.total_steps": STEPS, "training.shuffle": True, "lr_scheduler.warmup_steps": 1}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.starts = {}

    def start_with(self, ranks, number):
        """The first half of a run, made once for a number of ranks."""
        if ranks not in self.starts:
            run = self.train(f"start-{ranks}", nproc=ranks, **strategy(number, ranks))
            self.starts[ranks] = tool.snapshot_path(run.folder, HALF)
        return self.starts[ranks]

    def whole(self):
        if "whole" not in self.starts:
            self.starts["whole"] = self.train("whole", nproc=1, training__steps=STEPS).losses
        return {step: loss for step, loss in self.starts["whole"].items() if step > HALF}

    def test_any_number_of_ranks_and_any_strategy(self):
        number = 0
        for before in RANKS:
            for after in RANKS:
                number += 1
                to = strategy(number, after)
                with self.subTest(before=before, after=after, to=to["sharding__plugin"]):
                    run = self.train(f"from-{before}-to-{after}", nproc=after, training__steps=STEPS,
                                     checkpoint__resume=self.start_with(before, number), **to)
                    self.assert_near(run.losses, self.whole(), 1e-5, "losses")

    def test_states_come_back_bit_by_bit_through_any_number_of_ranks(self):
        """Nothing is trained between the two snapshots: every tensor of the second is the first's."""
        before = self.start_with(2, 0)
        for after in (1, 3, 8):
            run = self.train(f"idle-{after}", nproc=after, training__steps=HALF + 1, checkpoint__resume=before,
                             optimizer__lr=0.0, optimizer__weight_decay=0.0)
            again = tool.read_snapshot(tool.snapshot_path(run.folder, HALF + 1))
            self.assert_same_tensors(again, tool.read_snapshot(before), f"{after} ranks")

    def test_other_precisions_where_they_can_hold_it(self):
        before = self.start_with(2, 0)
        wider = self.train("wider", training__steps=STEPS, checkpoint__resume=before,
                           precision__options__dtype="float64")
        self.assert_near(wider.losses, self.whole(), 1e-5, "float64")
        narrower = self.train("narrower", training__steps=STEPS, checkpoint__resume=before,
                              precision__plugin="bf16_mixed")
        self.assert_near(narrower.losses, self.whole(), 2e-2, "bf16 weights over the same masters")
        back = self.train("back", training__steps=STEPS, checkpoint__resume=tool.snapshot_path(wider.folder, STEPS))
        self.assertEqual(back.losses, {})  # nothing left to do, and nothing refused
        self.assertIn("rounded to float32", back.err)


if __name__ == "__main__":
    unittest.main()

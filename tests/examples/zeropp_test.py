"""examples/zeropp against full_shard: bytes on the wire, loss, the same weights in both passes, overflows."""
import math
import unittest

import example
from example import chunk, plugin


def codes(n, block, bits, scale):
    return -(-n // block) * scale + -(-n * bits // 8)


class Zeropp(example.ExampleTest):
    def gathered(self, world, scale=2, block=256):
        """Two layers in two slots: every unit is gathered once a step."""
        return sum((world - 1) * codes(chunk(n, world), block, 8, scale) for n in example.unit_sizes(self.shape))

    def reduced(self, world, group, bits=4, scale=2, block=64):
        nodes, sent = world // group, 0
        for n in example.unit_sizes(self.shape):
            one = codes(chunk(n, world), block, bits, scale)
            sent += (group - 1) * nodes * one + (nodes - 1) * one
        return sent

    def both(self, name, sharding, world, **options):
        """Bytes of gathers and of one reduction of all units: three micro-steps gather once, reduce once or thrice."""
        sent = {}
        for when in ("micro_step", "boundary"):
            run = self.train_with(f"{name}-{when}", sharding, world, options={"reduce_at": when, **options},
                                  training__steps=3, training__global_batch_size=6 * world, **self.changes)
            sent[when] = self.sent(run)
        reduced = (sent["micro_step"] - sent["boundary"]) / 2
        return sent["boundary"] - reduced, reduced

    def test_bytes_are_those_of_the_formula(self):
        self.changes = {}
        for world, group in ((2, 1), (2, 2), (4, 2)):
            with self.subTest(world=world, group_size=group):
                measured = self.both(f"bytes{world}-{group}", plugin("zeropp"), world, group_size=group)
                self.assertEqual(measured, (self.gathered(world), self.reduced(world, group)))
        measured = self.both("bytes8", plugin("zeropp"), 4, group_size=2, gradient_bits="8", scales="fp32",
                             weight_block=100, gradient_block=128)
        self.assertEqual(measured, (self.gathered(4, 4, 100), self.reduced(4, 2, 8, 4, 128)))

    def test_about_half_and_a_quarter(self):
        """Of bfloat16 exactly 0.5 and 0.25, and the scales: 2 bytes for 256 weights, 2 bytes for 64 gradients."""
        self.changes = {}
        ours = self.both("small", plugin("zeropp"), 4, group_size=2)
        plain = self.both("plain", "full_shard", 4)
        self.changes = {"precision__plugin": "bf16_mixed"}
        bf16 = self.both("plain16", "full_shard", 4)
        self.assertEqual(bf16[0] * 2, plain[0])
        # The last block of a piece may be short: at most a scale more for each piece.
        self.assertAlmostEqual(ours[0] / bf16[0], 0.5 + 1 / 256, delta=0.002)
        self.assertAlmostEqual(ours[1] / (plain[1] / 2), 0.25 + 1 / 64, delta=0.002)
        print(f"gather: {ours[0] / plain[0]:.4f} of float32, {ours[0] / bf16[0]:.4f} of bfloat16; "
              f"reduce: {ours[1] / plain[1]:.4f} of float32, {2 * ours[1] / plain[1]:.4f} of bfloat16")

    def test_loss_stays_near_full_shard(self):
        changes = dict(training__steps=200)
        plain = self.train_with("loss-plain", "full_shard", 4, **changes)
        for bits, bound in (("4", 0.05), ("8", 0.02)):
            with self.subTest(gradient_bits=bits):
                ours = self.train_with("loss-" + bits, plugin("zeropp"), 4,
                                       options={"group_size": 2, "gradient_bits": bits}, **changes)
                apart = self.late_loss(ours) - self.late_loss(plain)
                print(f"int{bits} gradients: loss {self.late_loss(ours):.4f}, full_shard {self.late_loss(plain):.4f}")
                self.assertLess(abs(apart), bound)
        self.assertLess(self.late_loss(plain), plain.losses[1] - 2, "it learns at all")

    def test_other_formats(self):
        for k, changes in enumerate(({"precision__plugin": "bf16_mixed"}, {"precision__options__dtype": "float64"})):
            with self.subTest(**changes):
                plain = self.train_with(f"format-plain{k}", "full_shard", 2, training__steps=20, **changes)
                ours = self.train_with(f"format{k}", plugin("zeropp"), 2, options={"group_size": 1, "hpz": True},
                                       training__steps=20, **changes)
                self.assertLess(abs(self.late_loss(ours, 5) - self.late_loss(plain, 5)), 0.05)

    def test_hpz_computes_with_the_same_weights(self):
        """Its backward gathers what the forward used, so nothing changes but where the bytes go."""
        example.write_config(self.root + "/deep", layers=5)
        changes = dict(training__steps=6, model__hf_assets_path=self.root + "/deep")
        runs = [self.train_with(f"hpz-{hpz}", plugin("zeropp"), 4, options={"group_size": 2, "hpz": hpz}, **changes)
                for hpz in (False, True)]
        self.assertEqual(runs[0].losses, runs[1].losses)
        self.assertNotEqual(self.sent(runs[0]), self.sent(runs[1]))

    def test_one_rank_is_full_shard(self):
        runs = [self.train_with(f"alone-{k}", name, 1, training__steps=4)
                for k, name in enumerate(("full_shard", plugin("zeropp")))]
        self.assertEqual(runs[0].losses, runs[1].losses)

    def test_overflows_are_seen(self):
        """A loss scale that overflows some gradients is halved until none does, as with plain sums."""
        scales = []
        for k, name in enumerate(("full_shard", plugin("zeropp"))):
            run = self.train_with(f"overflow-{k}", name, 4, training__steps=40, precision__plugin=example.SCALED,
                                  precision__options__exponent=134)
            skipped = [r["step"] for r in run.rows if r.get("skipped")]
            self.assertGreater(len(skipped), 3)
            self.assertEqual(skipped[0], 1)
            self.assertTrue(math.isfinite(run.losses[40]))
            scales.append(run.rows[-1]["loss_scale"])
        self.assertLessEqual(abs(math.log2(scales[0] / scales[1])), 1, "the sum of rounded numbers may be a little off")

    def test_what_it_cannot_do_is_refused(self):
        for options, told in (({"group_size": 3}, r"group_size must divide the 4 ranks of the run \(got 3\)"),
                              ({"weight_block": 7}, r"weight_block must be even \(got 7\)"),
                              ({"gradient_block": 5000}, "gradient_block"), ({"gradient_bits": "5"}, "gradient_bits")):
            with self.subTest(**options):
                run = self.train_with("refused", plugin("zeropp"), 4, options=options, code=2)
                self.assertRegex(run.err, told)
                self.assertEqual(run.losses, {})

    def test_uneven_shards_and_blocks_across_them(self):
        run = self.train_with("uneven", plugin("zeropp"), 3, training__steps=4,
                              options={"align": 1, "group_size": 1, "weight_block": 4096, "gradient_block": 4096})
        plain = self.train_with("uneven-plain", "full_shard", 3, training__steps=4)
        self.assert_near(run.losses, plain.losses, 0.05, "loss")


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""shale checkpoint convert."""
import os
import unittest

import numpy as np

import tool


class ConvertTest(tool.RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.settings = {"training.steps": 6, "lr_scheduler.total_steps": 6, "checkpoint.interval": 3,
                        "training.local_batch_size": 1, "training.shuffle": True}

    def convert(self, source, to, *words, code=0, format="sharded"):
        done = self.shale("checkpoint", "convert", source, to, "--format", format, *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def source(self):
        if not os.path.exists(self.root + "/whole"):
            self.train("whole", nproc=4)
        return tool.snapshot_path(self.root + "/whole", 3)

    def test_a_run_goes_on_from_a_converted_snapshot_bitwise(self):
        source, to = self.source(), self.root + "/converted/step-00000003"
        self.convert(source, to)
        self.assertEqual(self.shale("checkpoint", "verify", to).returncode, 0)
        for role, key in ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg"), (tool.OPTIMIZER, "exp_avg_sq")):
            self.assert_same_tensors(tool.read_snapshot(to, role, key), tool.read_snapshot(source, role, key), key)
        rest = self.train("rest", nproc=4, checkpoint__resume=to)
        whole = tool.read_metrics(self.root + "/whole")
        self.assertEqual(rest.losses, {r["step"]: r["loss"] for r in whole if "loss" in r and r["step"] > 3})
        self.assertEqual(os.listdir(self.root + "/converted"), ["step-00000003"])

    def test_weights_alone_and_narrower(self):
        done = self.convert(self.source(), self.root + "/narrow/step-00000003", "--weights-only", "--dtype", "bfloat16")
        self.assertIn("that are no weights", done.stdout)
        text = self.shale("checkpoint", "inspect", self.root + "/narrow/step-00000003").stdout
        self.assertNotIn("optimizer/", text)
        self.assertIn("bfloat16", text)
        path = self.root + "/narrow/step-00000003"
        run = self.train("from-narrow", checkpoint__initial_load_path=path, training__steps=1)
        self.assertTrue(np.isfinite(run.losses[1]))
        full = self.train("not-whole", code=4, checkpoint__resume=self.root + "/narrow/step-00000003")
        self.assertIn("holds no optimizer state", full.err)

    def test_what_cannot_be_converted(self):
        source = self.source()
        os.makedirs(self.root + "/there", exist_ok=True)
        self.assertIn("is there already", self.convert(source, self.root + "/there", code=6).stderr)
        self.assertIn("nonsense", self.convert(source, self.root + "/x", code=2, format="nonsense").stderr)
        self.assertIn("is neither a snapshot nor", self.convert(self.root + "/there", self.root + "/x", code=4).stderr)
        self.convert(source, self.root + "/x", "--dtype", "float3", code=4)
        self.assertEqual([n for n in os.listdir(self.root) if n.startswith("x")], [])


if __name__ == "__main__":
    unittest.main()

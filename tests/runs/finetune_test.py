"""configs/smollm2.toml, as its comment says to run it: a real pretrained model goes on learning."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "parity"))
import shale_run

STEPS, SEQ_LEN = 4, 64


class Finetune(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name

    def tearDown(self):
        self.temporary.cleanup()

    def script(self, *words):
        done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 77:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def loss_by_transformers(self):
        """Of the first global batch: two sequences, in order."""
        from transformers import AutoModelForCausalLM
        import numpy
        tokens = torch.from_numpy(numpy.fromfile(self.folder + "/tokens.bin", dtype="uint16").astype("int64"))
        model = AutoModelForCausalLM.from_pretrained(self.folder + "/model", dtype=torch.float32)
        rows = torch.stack([tokens[i * SEQ_LEN:i * SEQ_LEN + SEQ_LEN + 1] for i in range(2)])
        with torch.no_grad():
            logits = model(rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()

    def test_a_pretrained_model_goes_on_learning(self):
        text = "In the beginning God created the heaven and the earth. And the earth was without form, and void. "
        with open(self.folder + "/text.txt", "w") as f:
            f.write(text * 60)
        self.script("tests/material/smollm2.py", self.folder + "/model")
        self.script("tests/material/tokens.py", self.folder + "/model", self.folder + "/text.txt",
                    self.folder + "/tokens.bin")
        done = subprocess.run(
            [shale_run.SHALE, "train", "configs/smollm2.toml", "--nproc", "2", f"--training.steps={STEPS}",
             f"--training.seq_len={SEQ_LEN}", "--training.shuffle=false", "--checkpoint.enable=false",
             f"--job.dump_folder={self.folder}/run", f"--model.hf_assets_path={self.folder}/model",
             f"--training.dataset_path={self.folder}/tokens.bin"],
            cwd=ROOT, capture_output=True, text=True, timeout=400, env=shale_run.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = [row["loss"] for row in shale_run.metrics(self.folder)]
        self.assertEqual(len(losses), STEPS)
        theirs = self.loss_by_transformers()
        self.assertLess(abs(math.exp(losses[0]) / math.exp(theirs) - 1), 5e-4, (losses[0], theirs))
        self.assertLess(losses[-1], losses[0] - 0.1, losses)


if __name__ == "__main__":
    unittest.main(verbosity=2)

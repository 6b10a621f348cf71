"""What all cases share: the fixtures LL, data and R2, and a run of the binary held to what every outcome must keep."""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import torch
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "parity"))
import reference
import shale_run

torch.set_num_threads(1)
SHALE = shale_run.SHALE
CONFIG, INPUT, CKPT, DIST, IO, NUM = 2, 3, 4, 5, 6, 7
WORDS = {CONFIG: "E-config", INPUT: "E-input", CKPT: "E-ckpt", DIST: "E-dist", IO: "E-io", NUM: "E-num"}
LIM = 60  # seconds for a run that fails
GOOD = 240  # for one that trains: generous, as machines are shared
LL = reference.Shape(ffn=56, layers=2)
TOKENS = [(i * i + 3 * i) % 97 for i in range(4097)]

Outcome = collections.namedtuple("Outcome", "code out err folder")


def write_ll(folder, shape=LL, **changes):
    """A Llama folder with float32 weights from a fixed seed; changes of config.json, None removes a key."""
    reference.write_model(folder, shape, reference.random_weights(shape, 1), torch.float32)
    return change_config(folder, **changes)


def change_config(folder, **changes):
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = json.load(f)
    config.update(changes)
    config["max_position_embeddings"] = changes.get("max_position_embeddings", 64)
    with open(path, "w") as f:
        json.dump({k: v for k, v in config.items() if v is not None}, f)
    return folder


def change_weights(folder, **changes):
    """Adds, replaces or (None) removes tensors; underscores twice stand for dots."""
    path = os.path.join(folder, "model.safetensors")
    weights = load_file(path)
    weights.update({name.replace("__", "."): tensor for name, tensor in changes.items()})
    save_file({n: t for n, t in weights.items() if t is not None}, path, metadata={"format": "pt"})
    return folder


def write_tokens(path, tokens=TOKENS, dtype=torch.uint16):
    torch.tensor(tokens, dtype=torch.int64).to(dtype).numpy().tofile(path)
    return path


def put(path, content):
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    return path


def relative(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def weights_apart(a, b):
    """Largest difference over all elements, relative to the largest of its tensor."""
    assert set(a) == set(b), sorted(set(a) ^ set(b))
    return max(((a[n].double() - b[n].double()).abs().max() / b[n].double().abs().max()).item() for n in b)


def session_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[3])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def processes_of(session):
    """Processes of a session: ranks have groups of their own but keep the session of who started them."""
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and session_of(p) == session]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.root = cls.temporary.name
        cls.ll = write_ll(cls.root + "/LL")
        cls.data = write_tokens(cls.root + "/data.bin")
        cls.runs = 0

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def place(self, name=""):
        """A new folder."""
        type(self).runs += 1
        folder = f"{self.root}/{self.runs}{name}"
        os.mkdir(folder)
        return folder

    def r2(self, **changes):
        """The settings of R2; section__key=value changes them, None removes one."""
        settings = {
            "model.hf_assets_path": self.ll, "training.dataset": "nanogpt", "training.dataset_path": self.data,
            "training.seq_len": 16, "training.local_batch_size": 2, "training.steps": 8, "training.shuffle": False,
            "optimizer.lr": 1e-3, "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0.0,
            "metrics.log_freq": 1, "debug.seed": 1234, "comm.train_timeout_seconds": 20,
            "sharding.plugin": "full_shard", "precision.plugin": "uniform",
        }
        settings.update({k.replace("__", "."): v for k, v in changes.items()})
        return {k: v for k, v in settings.items() if v is not None}

    def config(self, folder, **changes):
        path = folder + "/run.toml"
        shale_run.write_config(path, {"job.dump_folder": folder + "/run", **self.r2(**changes)})
        return path

    def start(self, folder, command, env=None, **more):
        """Starts a command in a session of its own, with an empty folder for temporary files."""
        os.makedirs(folder + "/tmp", exist_ok=True)
        around = {**shale_run.environment(), "TMPDIR": folder + "/tmp", **(env or {})}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around,
                                start_new_session=True, **more)

    def finish(self, process, folder, limit=GOOD):
        """Waits; nothing of the run may be left but what it is asked to make."""
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            for pid in processes_of(process.pid):
                os.kill(pid, 9)
            out, err = process.communicate()
            self.fail(f"{process.args} did not end within {limit} s\n{out}{err}")
        self.assertEqual(processes_of(process.pid), [], "processes are left")
        self.hold_clean(folder)
        return Outcome(process.returncode, out, err, folder)

    def hold_clean(self, folder):
        self.assertEqual(os.listdir(folder + "/tmp"), [], "temporary files are left")
        run = set(os.listdir(folder + "/run")) if os.path.isdir(folder + "/run") else set()
        self.assertLessEqual(run, {"config.toml", "plugins.json", "metrics.jsonl", "checkpoints"}, "half-made files")
        snapshots = folder + "/run/checkpoints"
        for name in os.listdir(snapshots) if os.path.isdir(snapshots) else ():
            self.assertRegex(name, r"^step-\d{8}$", "half-published snapshot")

    def command(self, config, nproc=2, *args):
        return [SHALE, "train", config, *(["--nproc", str(nproc)] if nproc else []), *args]

    def shale(self, config, nproc=2, *args, env=None, limit=GOOD, **more):
        """Runs a configuration that stands in a folder of its own."""
        folder = os.path.dirname(config)
        return self.finish(self.start(folder, self.command(config, nproc, *args), env, **more), folder, limit)

    def trained(self, nproc=2, env=None, **changes):
        """Trains R2 with changes; it must end well with all announced steps done."""
        outcome = self.shale(self.config(self.place(), **changes), nproc, env=env)
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        last = re.findall(r"^step (\d+)/(\d+) ", outcome.out, re.M)[-1]
        self.assertEqual(last[0], last[1], "exit 0, but not all announced steps were done")
        return outcome

    def refused(self, code, *words, nproc=2, env=None, **changes):
        """R2 with changes must fail."""
        return self.hold_refusal(self.shale(self.config(self.place(), **changes), nproc, env=env, limit=LIM), code,
                                 *words)

    def hold_refusal(self, outcome, code, *words):
        """The exit code, and one error in one place that holds all words."""
        everything = outcome.out + outcome.err
        self.assertEqual(outcome.code, code, everything)
        errors = re.findall(r"^(?:shale:|\[rank \d+\]) (E-\w+): (.*(?:\n  .*)*)", outcome.err, re.M)
        self.assertEqual(len(errors), 1, f"one error is expected:\n{everything}")
        self.assertEqual(errors[0][0], WORDS[code], everything)
        for word in words:
            self.assertIn(str(word), errors[0][1])
        self.assertEqual(everything.count(errors[0][1]), 1, "the message appears more than once")
        self.assertTrue(everything.endswith(errors[0][1] + "\n"), "the error is not the last word:\n" + everything)
        self.assertNotIn("step 1/", outcome.out)
        return errors[0][1]

    def metrics(self, outcome):
        return shale_run.metrics(outcome.folder)

    def losses(self, outcome):
        return [row["loss"] for row in self.metrics(outcome)]

    def hold_equal(self, ours, theirs, bound=1e-5):
        """Loss and gradient norm of every step."""
        a, b = self.metrics(ours), self.metrics(theirs)
        self.assertEqual(len(a), len(b))
        for key in ("loss", "grad_norm"):
            self.assertLess(max(relative(x[key], y[key]) for x, y in zip(a, b)), bound, key)

    def hold_warning(self, outcome, *words):
        """Exactly one warning holds all words."""
        lines = [line for line in outcome.err.splitlines() if line.startswith("shale: warning: ")]
        lines = [line for line in lines if all(str(word) in line for word in words)]
        self.assertEqual(len(lines), 1, f"one warning with {words} is expected:\n{outcome.err}")


def wait_until(condition, limit=LIM):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s")
        time.sleep(0.005)

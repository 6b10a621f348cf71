"""Runs the shale binary on a tiny Llama and reads what it leaves: text, metrics, snapshots."""
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHALE = os.environ.get("SHALE_BINARY", os.path.join(ROOT, "build", "shale"))
LIMIT = 120  # seconds for any run: a hang is a failure
WEIGHT, OPTIMIZER, PLUGIN = 1, 2, 4  # roles of items in a snapshot


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (str, list)) else repr(value)


def write_toml(path, settings):
    """settings: {"section.key": value}; options of plugins as "sharding.options.key"."""
    sections = {}
    for key, value in settings.items():
        section, name = key.rsplit(".", 1)
        sections.setdefault(section, []).append(f"{name} = {toml(value)}")
    with open(path, "w") as f:
        for section, lines in sections.items():
            f.write(f"[{section}]\n" + "\n".join(lines) + "\n\n")


def environment(**extra):
    # Threads that wait without spinning: a busy machine would make the tests crawl.
    own = {k: v for k, v in os.environ.items() if not k.startswith("SHALE_")} | {"OMP_WAIT_POLICY": "passive"}
    return own | extra


def model_config(layers=2, ffn=56):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": 24,
            "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": 4,
            "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False}


def model_shapes(config):
    dim, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (vocab, dim)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{norm}.weight", (dim,)
        for name, rows in (("q", dim), ("k", dim // 2), ("v", dim // 2), ("o", dim)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, dim)
        yield f"{layer}mlp.gate_proj.weight", (ffn, dim)
        yield f"{layer}mlp.up_proj.weight", (ffn, dim)
        yield f"{layer}mlp.down_proj.weight", (dim, ffn)
    yield "model.norm.weight", (dim,)
    yield "lm_head.weight", (vocab, dim)


def write_model(folder, weights=True, edit=None, **shape):
    """A Hugging Face folder; edit(weights) may change them before they are written."""
    os.makedirs(folder, exist_ok=True)
    config = model_config(**shape)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    if not weights:
        return
    random = np.random.default_rng(1)
    tensors = {}
    for name, size in model_shapes(config):
        draw = random.standard_normal(size).astype(np.float32)
        tensors[name] = 1 + draw / 10 if len(size) == 1 else draw / np.float32(size[-1] ** 0.5)
    if edit:
        edit(tensors)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def write_tokens(path, tokens):
    np.asarray(tokens, dtype=np.uint16).tofile(path)


def fixture_tokens(n=4097):
    i = np.arange(n, dtype=np.int64)
    return (i * i + 3 * i) % 97


class Result:
    """A finished run: exit code, text, and the lines of metrics.jsonl."""

    def __init__(self, folder, done):
        self.folder, self.code, self.out, self.err = folder, done.returncode, done.stdout, done.stderr
        told = read_metrics(folder)
        self.rows, self.saves = [r for r in told if "snapshot" not in r], [r for r in told if "snapshot" in r]
        steps = [r for r in self.rows if "loss" in r]
        self.losses = {r["step"]: r["loss"] for r in steps}
        self.rates = {r["step"]: r["lr"] for r in steps}
        self.validation = {r["step"]: r["validation_loss"] for r in self.rows if "validation_loss" in r}
        self.snapshots = snapshots(folder)


def read_metrics(folder):
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]


def snapshots(folder):
    """Steps of everything in checkpoints/ that is named like a snapshot."""
    found = glob.glob(os.path.join(folder, "checkpoints", "step-*"))
    return sorted(int(m[1]) for m in (re.fullmatch(r".*/step-(\d{8,})", p) for p in found) if m)


def snapshot_path(folder, step):
    return os.path.join(folder, "checkpoints", f"step-{step:08d}")


def read_snapshot(path, role=WEIGHT, key="weight"):
    """Whole tensors by name, put together from the boxes of every rank by plain safetensors."""
    parts, shapes = [], {}
    for file in sorted(glob.glob(os.path.join(path, "*.safetensors"))):
        with safe_open(file, "np") as f:
            for name in f.keys():
                match = re.fullmatch(r"(\d+)/(.*)/([^/\[]+)(?:\[(.*)\])?", name)
                if int(match[1]) != role or match[3] != key:
                    continue
                box = [tuple(map(int, r.split(":"))) for r in match[4].split(",")] if match[4] else []
                parts.append((match[2], box, f.get_tensor(name)))
                ends = [end for _, end in box]
                shapes[match[2]] = [max(a, b) for a, b in zip(shapes.get(match[2], [0] * len(ends)), ends)]
    out = {}
    for name, box, tensor in parts:
        whole = out.setdefault(name, np.full(shapes[name], np.nan, dtype=tensor.dtype))
        whole[tuple(slice(a, b) for a, b in box)] = tensor
    return out


def processes_with(text):
    """Ids of processes with this text in their command line."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and int(entry) != os.getpid():
            found.append(int(entry))
    return found


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return sorted(map(int, f.read().split()))


class RunTest(unittest.TestCase):
    """A folder per class with the model, tokens and, per run, a folder and a TOML file."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="shale-runs-")
        cls.root = cls.temporary.name
        write_model(cls.root + "/llama")
        write_model(cls.root + "/empty", weights=False)
        write_tokens(cls.root + "/tokens.bin", fixture_tokens())
        write_tokens(cls.root + "/held-out.bin", fixture_tokens(2000)[1000:])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def config(self, name, **changes):
        """Writes the TOML file of a run: sharding__options__x=1 is [sharding.options] x = 1."""
        settings = {
            "job.dump_folder": f"{self.root}/{name}", "model.hf_assets_path": self.root + "/llama",
            "training.dataset": "nanogpt", "training.dataset_path": self.root + "/tokens.bin",
            "training.seq_len": 16, "training.local_batch_size": 2, "training.steps": 8, "training.shuffle": False,
            "training.threads": 1, "optimizer.lr": 1e-3,
            "lr_scheduler.warmup_steps": 2 if changes.get("training__steps") != 1 else 0,
            "lr_scheduler.decay_type": "cosine", "checkpoint.enable": True, "checkpoint.interval": 1000,
            "comm.train_timeout_seconds": 30, "metrics.log_freq": 1, "debug.seed": 1234,
            **self.settings, **{k.replace("__", "."): v for k, v in changes.items()}}
        path = f"{self.root}/{name}.toml"
        write_toml(path, {k: v for k, v in settings.items() if v is not None})
        return path

    def shale(self, *words, **extra):
        return subprocess.run([SHALE, *map(str, words)], capture_output=True, text=True, timeout=LIMIT,
                              env=environment(**extra), cwd=self.root)

    def train(self, name, nproc=2, code=0, **changes):
        done = self.shale("train", self.config(name, **changes), "--nproc", nproc)
        text = f"shale train {name} --nproc {nproc}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, text)
        if code not in (0, 130, 143):
            self.assertEqual(done.stderr.count("E-"), 1, "the cause is told once: " + text)
        return Result(f"{self.root}/{name}", done)

    def start(self, name, nproc=2, **changes):
        """A run in the background, killed at the end of the test if it is still there."""
        run = subprocess.Popen([SHALE, "train", self.config(name, **changes), "--nproc", str(nproc)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
                               cwd=self.root)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.stdout.close)
        self.addCleanup(lambda: run.poll() is None and (run.kill(), run.wait()))
        return run

    def finish(self, name, run, code):
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, f"{name}: exit {run.returncode}\n{out}{err}")
        return Result(f"{self.root}/{name}", subprocess.CompletedProcess([], run.returncode, out, err))

    def wait_for(self, what, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what} did not happen")
            time.sleep(0.005)

    def wait_for_step(self, name, step):
        path = f"{self.root}/{name}/metrics.jsonl"
        self.wait_for(f"step {step} of {name}", lambda: os.path.exists(path) and read_text(path).count("loss_scale")
                      >= step)

    def assert_near(self, a, b, bound, what):
        self.assertEqual(a.keys(), b.keys(), what)
        for key in a:
            self.assertLessEqual(abs(a[key] - b[key]), bound * max(abs(a[key]), abs(b[key])), f"{what}: {key}")

    def assert_same_tensors(self, a, b, what):
        self.assertEqual(a.keys(), b.keys(), what)
        for name in a:
            self.assertTrue(np.array_equal(a[name], b[name]), f"{what}: {name} differs")


def read_text(path, mode="r"):
    with open(path, mode) as f:
        return f.read()


def write_text(path, text, mode="w"):
    with open(path, mode) as f:
        f.write(text)


def kill(pid, number=signal.SIGTERM):
    os.kill(pid, number)

"""Runs of the example plugins: a tiny Llama on the bytes of the King James Bible, and what is sent in a step."""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT + "/tests/runs")
import tool

PLUGINS = os.environ.get("SHALE_EXAMPLES", ROOT + "/build/examples")  # made by build.sh
SCALED = os.environ.get("SHALE_SCALED", ROOT + "/build/tests/scaled.so")
SHAPE = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 160}


def plugin(name):
    return f"{PLUGINS}/{name}.so"


def write_config(folder, layers=2):
    os.makedirs(folder, exist_ok=True)
    config = {**tool.model_config(layers), **SHAPE}
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f)
    return config


def shapes_by_unit(config):
    """The shapes of each unit's parameters: embedding, layers, final norm with head."""
    units = [[] for _ in range(config["num_hidden_layers"] + 2)]
    for name, shape in tool.model_shapes(config):
        layer = name.split(".")[2] if name.startswith("model.layers.") else None
        units[int(layer) + 1 if layer else 0 if "embed" in name else -1].append(shape)
    return units


def numel(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def unit_sizes(config):
    return [sum(map(numel, unit)) for unit in shapes_by_unit(config)]


def chunk(n, ways, align=64):
    """Elements of a flat of n that each of `ways` ranks sends."""
    return -(-n // (ways * align)) * align


def all_reduce_bytes(n, ways):
    return 2 * n * (ways - 1) // ways


class ExampleTest(tool.RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shape = write_config(cls.root + "/tiny")
        text = subprocess.run(["bible", "-f", "gen1:1-gen50:26"], capture_output=True, check=True).stdout
        tool.write_text(cls.root + "/text", text, "wb")
        cls.settings = {"model.hf_assets_path": cls.root + "/tiny", "training.dataset": "text",
                        "training.dataset_path": cls.root + "/text", "training.seq_len": 64, "training.shuffle": True,
                        "optimizer.lr": 3e-3, "lr_scheduler.warmup_steps": 0, "metrics.log_freq": 50,
                        "checkpoint.enable": False, **cls.settings}

    def train_with(self, name, sharding, nproc, options=None, **changes):
        options = {f"sharding__options__{k}": v for k, v in (options or {}).items()}
        return self.train(name, nproc, sharding__plugin=sharding, **options, **changes)

    def sent(self, run):
        """Bytes that rank 0 sent in each step after the first, which are all the same."""
        rows = [r["sent_bytes"] for r in run.rows if "sent_bytes" in r]
        steps = [b - a for a, b in zip(rows, rows[1:])]
        self.assertEqual(len(set(steps)), 1, steps)
        return steps[0]

    def late_loss(self, run, steps=20):
        return sum(list(run.losses.values())[-steps:]) / steps

"""The model, weights and tokens that both sides train on, and runs of shale over them."""
import os
import sys
import tempfile

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference as ref
import shale_run

torch.set_num_threads(1)


def relative(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def worst(a, b):
    assert len(a) == len(b), (len(a), len(b))
    return max(map(relative, a, b))


def weights_apart(a, b):
    """Largest difference over all elements, relative to the largest of its tensor."""
    assert set(a) == set(b), sorted(set(a) ^ set(b))
    return max(((a[n].double() - b[n].double()).abs().max() / b[n].double().abs().max()).item() for n in b)


class Scene:
    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.shape = ref.Shape()
        self.weights = ref.random_weights(self.shape, 1)
        ref.write_model(self.folder + "/hf64", self.shape, self.weights)
        ref.write_model(self.folder + "/hf32", self.shape, self.weights, torch.float32)
        i = torch.arange(4097, dtype=torch.int64)
        self.tokens = (i * i + 3 * i) % self.shape.vocab
        self.tokens.to(torch.uint16).numpy().tofile(self.folder + "/tokens.bin")

    def close(self):
        self.temporary.cleanup()

    def job(self, kind, training):
        return kind, self.shape, training, self.weights, self.tokens

    def settings(self, world, training, **extra):
        double = training.dtype == torch.float64
        settings = {
            "model.hf_assets_path": self.folder + ("/hf64" if double else "/hf32"),
            "training.dataset": "nanogpt", "training.dataset_path": self.folder + "/tokens.bin",
            "training.seq_len": training.seq_len, "training.local_batch_size": training.micro_batch,
            "training.global_batch_size": training.micro_batch * training.micro_steps * world,
            "training.steps": training.steps, "training.shuffle": False, "training.max_norm": training.max_norm,
            "training.threads": 1,
            "optimizer.lr": training.lr, "optimizer.beta1": training.betas[0], "optimizer.beta2": training.betas[1],
            "optimizer.eps": training.eps, "optimizer.weight_decay": training.weight_decay,
            "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0.0,
            "checkpoint.enable": True, "checkpoint.interval": 1000000, "comm.train_timeout_seconds": 60,
            "sharding.plugin": "full_shard", "precision.plugin": "bf16_mixed" if training.bf16 else "uniform",
            **{k.replace("__", "."): v for k, v in extra.items()},
        }
        if settings["precision.plugin"] == "uniform":
            settings["precision.options.dtype"] = "float64" if double else "float32"
        return settings

    def shale(self, name, world, training=None, hosts=1, **extra):
        """Losses, gradient norms and final weights of a run."""
        training = training or ref.Training()
        folder = os.path.join(self.folder, name)
        settings = self.settings(world, training, **extra)
        shale_run.train(folder, settings, world // hosts, hosts=hosts)
        rows = shale_run.metrics(folder)
        return [r["loss"] for r in rows], [r["grad_norm"] for r in rows], shale_run.snapshot(folder, training.steps)

"""Runs of the binary on test hosts, started the ways users start them, and what they leave."""
import os
import subprocess
import sys
import unittest

import hosts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "runs"))
import tool

PORT = 29500


def meeting_point(on):
    return {"MASTER_ADDR": on[0].address, "MASTER_PORT": str(PORT)}


def by_nproc(on, per_host):
    """Once per host, `--nproc` ranks each: (host, words, variables)."""
    for host in on:
        yield host, ["--nproc", per_host], meeting_point(on) | {
            "PET_NNODES": str(len(on.hosts)), "PET_NODE_RANK": str(host.number)}


def by_rank(on, per_host):
    """Once per rank, with the variables that torchrun sets."""
    for rank in range(len(on.hosts) * per_host):
        yield on[rank // per_host], [], meeting_point(on) | {
            "RANK": str(rank), "WORLD_SIZE": str(len(on.hosts) * per_host), "LOCAL_RANK": str(rank % per_host),
            "LOCAL_WORLD_SIZE": str(per_host), "GROUP_RANK": str(rank // per_host)}


def by_srun(on, per_host):
    """Once per rank, with Slurm's variables; the name of the first host would need a name server."""
    world = len(on.hosts) * per_host
    for rank in range(world):
        yield on[rank // per_host], [], {
            "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(world), "SLURM_LOCALID": str(rank % per_host),
            "SLURM_NODEID": str(rank // per_host), "SLURM_STEP_NUM_NODES": str(len(on.hosts)), "SLURM_JOB_ID": "4711",
            "SLURM_STEP_TASKS_PER_NODE": f"{per_host}(x{len(on.hosts)})", "MASTER_ADDR": on[0].address}


class Running:
    """A program on a host, its output in a file."""

    def __init__(self, host, words, env, path):
        self.host, self.path = host, path
        with open(path, "w") as out:
            self.process = host.start(words, env, stdout=out, stderr=subprocess.STDOUT)

    def wait(self, seconds):
        return self.process.wait(timeout=seconds)

    @property
    def text(self):
        return tool.read_text(self.path)


class HostsTest(tool.RunTest):
    """`wide`: a model whose weights are most of what is sent."""

    model = tool.model_config(layers=4) | {"hidden_size": 128, "intermediate_size": 344}
    settings = {"training.steps": 6, "checkpoint.enable": False, "lr_scheduler.total_steps": 40,
                "comm.init_timeout_seconds": 60}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.makedirs(cls.root + "/wide")
        tool.write_text(cls.root + "/wide/config.json", tool.json.dumps(cls.model))
        cls.settings = cls.settings | {"model.hf_assets_path": cls.root + "/wide"}

    def start_on(self, on, per_host, name, how=by_nproc, **changes):
        config = self.config(name, **changes)
        running = []
        for i, (host, words, variables) in enumerate(how(on, per_host)):
            running.append(Running(host, [tool.SHALE, "train", config, *words], tool.environment(**variables),
                                   f"{self.root}/{name}-{i}.txt"))
        self.addCleanup(lambda: [r.process.kill() or r.wait(None) for r in running if r.process.poll() is None])
        return running

    def end(self, name, running, code=0, seconds=tool.LIMIT):
        """Waits for all, which may take `seconds`; every one must end with this code."""
        end = tool.time.monotonic() + seconds
        for r in running:
            try:
                r.wait(max(0.1, end - tool.time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"{name}: still running on {r.host.name} after {seconds} s\n{r.text}")
            self.assertEqual(r.process.returncode, code, f"{name} on {r.host.name}:\n{r.text}")
        left = tool.processes_with(f"{self.root}/{name}.toml")
        self.assertEqual(left, [], f"{name}: processes are left")
        done = subprocess.CompletedProcess([], code, "", "".join(r.text for r in running))
        return tool.Result(f"{self.root}/{name}", done)

    def train_on(self, on, per_host, name, how=by_nproc, **changes):
        return self.end(name, self.start_on(on, per_host, name, how, **changes))


def main():
    hosts.skip_if_forbidden()
    unittest.main(verbosity=2)

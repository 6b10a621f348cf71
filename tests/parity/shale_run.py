"""Runs the shale binary and reads what it leaves: metrics and snapshots."""
import glob
import itertools
import json
import os
import re
import socket
import subprocess

import torch
from safetensors import safe_open

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
PORTS = itertools.count(20000 + os.getpid() % 10000)
SHALE = os.environ.get("SHALE_BINARY", os.path.join(ROOT, "build", "shale"))


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (str, list)) else repr(value)


def write_config(path, settings):
    """settings: {"section.key": value}; options of plugins as "sharding.options.key"."""
    sections = {}
    for key, value in settings.items():
        section, name = key.rsplit(".", 1)
        sections.setdefault(section, []).append(f"{name} = {toml(value)}")
    with open(path, "w") as f:
        for section, lines in sections.items():
            f.write(f"[{section}]\n" + "\n".join(lines) + "\n\n")


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SHALE_")}
    return clean


def can_name_hosts():
    """May this user give a process a host name of its own? Two of them on one machine are two hosts to shale."""
    return subprocess.run(["unshare", *USER, "--uts", "hostname", "test"], capture_output=True).returncode == 0


def free_port():
    """Outside the range that the kernel gives to connections, so that nobody takes it in between."""
    for port in PORTS:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def train_on_hosts(command, hosts, limit):
    """As many launchers as hosts, each under a host name of its own; the first that failed, or the first."""
    shared = {"PET_NNODES": str(hosts), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "GLOO_SOCKET_IFNAME": "lo"}
    named = ["unshare", *USER, "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
    runs = []
    for n in range(hosts):
        mine = environment() | shared | {"PET_NODE_RANK": str(n)}
        runs.append(subprocess.Popen([*named, f"host{n}", *command], env=mine, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True))
    try:
        done = []
        for run in runs:
            output, _ = run.communicate(timeout=limit)
            done.append(subprocess.CompletedProcess(run.args, run.returncode, output, ""))
    finally:
        for run in runs:
            run.kill()
    return next((d for d in done if d.returncode != 0), done[0])


def train(folder, settings, nproc, limit=300, check=True, hosts=1):
    """Trains on nproc ranks of each host; returns the finished process. The run folder is <folder>/run."""
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(folder, "run.toml")
    settings = {"job.dump_folder": os.path.join(folder, "run"), **settings}
    write_config(config, settings)
    command = [SHALE, "train", config, "--nproc", str(nproc)]
    if hosts == 1:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment())
    else:
        done = train_on_hosts(command, hosts, limit)
    if check and done.returncode != 0:
        output = done.stdout + done.stderr
        raise AssertionError(f"shale train {config} --nproc {nproc}: exit {done.returncode}\n{output}")
    return done


def metrics(folder):
    with open(os.path.join(folder, "run", "metrics.jsonl")) as f:
        return [row for row in map(json.loads, f) if "loss" in row]


def snapshot(folder, step, role=1, key="weight"):
    """Full tensors of a snapshot, put together from every rank's boxes by plain safetensors."""
    out = {}
    path = os.path.join(folder, "run", "checkpoints", f"step-{step:08d}")
    files = sorted(glob.glob(os.path.join(path, "*.safetensors")))
    shapes = {}
    parts = []
    for file in files:
        with safe_open(file, "pt") as f:
            for name in f.keys():
                match = re.fullmatch(r"(\d+)/(.*)/([^/\[]+)(?:\[(.*)\])?", name)
                if int(match[1]) != role or match[3] != key:
                    continue
                ranges = [tuple(map(int, r.split(":"))) for r in match[4].split(",")] if match[4] else []
                parts.append((match[2], ranges, f.get_tensor(name)))
                ends = [end for _, end in ranges]
                old = shapes.get(match[2], [0] * len(ends))
                shapes[match[2]] = [max(a, b) for a, b in zip(old, ends)]
    for name, ranges, tensor in parts:
        if name not in out:
            out[name] = torch.full(shapes[name], float("nan"), dtype=tensor.dtype)
        out[name][tuple(slice(a, b) for a, b in ranges)] = tensor
    for name, tensor in out.items():
        assert not tensor.isnan().any(), f"{path}: {name} has elements that no rank wrote"
    return out

"""shale full_shard beside PyTorch FSDP2 (eager, Gloo) on this machine: one run, same model, weights and batches.

    tests/bench/bench.py [tiny|small] [--steps N] [--turns N]

Both systems run whole, taking turns; a turn gives each the same number of steps. Printed: median seconds and CPU
seconds per step without the first, tokens/s, peak resident memory, seconds from launch to the end of step 1, and the
ratios as median over turns. Ratios are the figures to quote: the times of one machine say little about another's.
"""
import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "parity"))
import reference as ref
import shale_run

WORKLOADS = {
    "tiny": (ref.Shape(vocab=256, dim=256, ffn=688, layers=4, heads=4, kv_heads=2), 256, 4),
    "small": (ref.Shape(vocab=32000, dim=768, ffn=2048, layers=12, heads=12, kv_heads=4), 256, 1),
}


@dataclasses.dataclass
class Run:
    folder: str
    workload: str
    steps: int
    ranks: int = 2


def training_of(name, steps):
    shape, seq_len, batch = WORKLOADS[name]
    return shape, ref.Training(steps=steps, seq_len=seq_len, micro_batch=batch, lr=3e-4, dtype=torch.float32)


def make_data(folder, name):
    shape, training = training_of(name, 1)
    generator = torch.Generator().manual_seed(7)
    weights = {}
    for key, w in ref.random_weights(shape, 1).items():
        weights[key] = (w if w.dim() == 1 else torch.randn(w.shape, generator=generator) * 0.02).float()
    ref.write_model(folder + "/hf", shape, weights, torch.float32)
    tokens = torch.randint(0, shape.vocab, (training.seq_len * 4096 + 1,), generator=generator)
    tokens.to(torch.uint16).numpy().tofile(folder + "/tokens.bin")


def run_shale(job, strategy="full_shard", options=None):
    folder, steps = job.folder, job.steps
    _, t = training_of(job.workload, steps)
    run = f"{folder}/shale-{time.monotonic_ns()}"
    os.makedirs(run)
    shale_run.write_config(run + "/run.toml", {
        "job.dump_folder": run + "/run", "model.hf_assets_path": folder + "/hf", "training.dataset": "nanogpt",
        "training.dataset_path": folder + "/tokens.bin", "training.seq_len": t.seq_len,
        "training.local_batch_size": t.micro_batch, "training.steps": steps, "training.shuffle": False,
        "optimizer.lr": t.lr, "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0.0,
        "sharding.plugin": strategy, "metrics.log_freq": 1000000,
        **{f"sharding.options.{k}": v for k, v in (options or {}).items()}})
    launched = time.monotonic()
    process = subprocess.Popen([shale_run.SHALE, "train", run + "/run.toml", "--nproc", str(job.ranks)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=shale_run.environment())
    first = None
    while process.poll() is None and first is None:
        metrics = run + "/run/metrics.jsonl"
        if os.path.exists(metrics) and os.path.getsize(metrics) > 0:
            first = time.monotonic() - launched
        time.sleep(0.005)
    out, error = process.communicate()
    if process.returncode:
        raise SystemExit(f"shale failed: {out}{error}")
    rows = shale_run.metrics(run)
    took = [r["seconds"] for r in rows[1:]]
    each = lambda key: statistics.median(b[key] - a[key] for a, b in zip(rows[1:], rows[2:]))
    return {"step": statistics.median(took), "cpu": each("cpu_seconds"), "first": first,
            "rss": max(r["peak_rss_bytes"] for r in rows), "loss": rows[-1]["loss"],
            "forecast": rows[-1]["forecast_bytes"], "sent": each("sent_bytes"),
            "sent_forecast": rows[-1]["forecast_sent_bytes"],
            "tensors": rows[-1]["peak_tensor_bytes"], "wait": each("comm_wait_seconds") / statistics.median(took),
            "large": each("large_allocations")}


def _peer(rank, port, job):
    """job: folder, workload, steps, ranks, kind of wrapping, when the program was launched, where the figures go."""
    folder, name, steps, ranks, kind, launched, out = job
    world = int(ranks)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    from safetensors.torch import load_file
    shape, training = training_of(name, int(steps))
    tokens = torch.from_numpy(__import__("numpy").fromfile(folder + "/tokens.bin", dtype="uint16")).long()
    model, optimizer = ref.build(shape, load_file(folder + "/hf/model.safetensors"), training, kind)
    took, cpu, first = [], [], None
    for step in range(int(steps)):
        parts = list(ref.batches(tokens, training, step, rank, world))
        begin, used = time.monotonic(), time.process_time()
        loss, _ = ref.train_step(model, optimizer, training, parts, world)
        took.append(time.monotonic() - begin), cpu.append(time.process_time() - used)
        first = first or time.monotonic() - float(launched)
    if rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with open(out, "w") as f:
            json.dump({"step": statistics.median(took[1:]), "cpu": statistics.median(cpu[1:]), "first": first,
                       "rss": peak, "loss": loss}, f)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_peer(job, kind):
    out = job.folder + "/peer.json"
    code = f"import sys; sys.path.insert(0, {HERE!r}); import bench; bench.peer_main(sys.argv[1:])"
    launched = time.monotonic()
    subprocess.run([sys.executable, "-c", code, job.folder, job.workload, str(job.steps), str(job.ranks), kind,
                    str(launched), out], check=True)
    with open(out) as f:
        return json.load(f)


def peer_main(job):
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(_peer, (port, job), nprocs=int(job[3]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="?", default="tiny", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peer", default="fsdp2", choices=["fsdp2", "ddp"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder, args.workload)
        ours, theirs = [], []
        for _ in range(args.turns):
            job = Run(folder, args.workload, args.steps)
            ours.append(run_shale(job))
            theirs.append(run_peer(job, args.peer))
    report(args, ours, theirs)


def report(args, ours, theirs):
    _, t = training_of(args.workload, 1)
    tokens = 2 * t.seq_len * t.micro_batch
    middle = lambda runs, key: statistics.median(r[key] for r in runs)
    ratio = lambda key: statistics.median(a[key] / b[key] for a, b in zip(ours, theirs))
    print(f"{args.workload}: 2 ranks, {args.turns} turns of {args.steps} steps, torch {torch.__version__}")
    print(f"| | shale full_shard | {args.peer} | ratio |\n|---|---|---|---|")
    for key, label, scale in (("step", "seconds a step", 1), ("cpu", "CPU seconds a step and rank", 1),
                              ("rss", "peak RSS, MiB a rank", 2**20), ("first", "launch to end of step 1, s", 1)):
        print(f"| {label} | {middle(ours, key) / scale:.3f} | {middle(theirs, key) / scale:.3f} | {ratio(key):.3f} |")
    print(f"| tokens/s | {tokens / middle(ours, 'step'):.0f} | {tokens / middle(theirs, 'step'):.0f} | |")
    print(f"| last loss | {ours[-1]['loss']:.6f} | {theirs[-1]['loss']:.6f} | |")
    print(f"| forecast, MiB a rank (measured / forecast) | {middle(ours, 'forecast') / 2**20:.1f} | "
          f"| {middle(ours, 'rss') / middle(ours, 'forecast'):.3f} |")
    print(f"| peak tensors, MiB a rank | {middle(ours, 'tensors') / 2**20:.1f} | | |")
    print(f"| share of the time waiting for collectives | {middle(ours, 'wait'):.3f} | | |")
    print(f"| blocks of 1 MiB and more taken per step | {middle(ours, 'large'):.1f} | | |")


if __name__ == "__main__":
    main()

"""Every sharding strategy on four ranks of this machine, beside PyTorch where it has the strategy.

    tests/bench/strategies.py [tiny|small] [--steps N] [--turns N] [--only NAME ...] [--plugin FILE.so ...] [--alone]

One run: the strategies take turns, each with its peer. Printed per strategy: median seconds a step, bytes a rank sends
in a step (counted and as forecast), peak resident memory and its share of the forecast, and the ratio of the times to
the peer's. --plugin adds strategies from files, with default options; --alone leaves PyTorch out.
"""
import argparse
import os
import statistics
import tempfile

import torch

import bench

RANKS = 4
# name, plugin, options, PyTorch's kind (tests/parity/reference.py)
ROWS = [
    ("no_shard", "no_shard", {}, "ddp"),
    ("zero1", "zero1", {}, "zero1"),
    ("zero2", "zero2", {}, None),
    ("shard_grad_op", "shard_grad_op", {}, "fsdp2_keep"),
    ("full_shard", "full_shard", {}, "fsdp2"),
    ("full_shard, reshard_size 2", "full_shard", {"reshard_size": 2}, "fsdp2_inside2"),
    ("full_shard, layers_per_gather 2", "full_shard", {"layers_per_gather": 2}, "fsdp2_pairs"),
    ("hybrid_shard, 2 x 2", "hybrid_shard", {"shard_size": 2}, "hsdp"),
    ("hybrid_shard_zero2, 2 x 2", "hybrid_shard_zero2", {"shard_size": 2}, "hsdp_keep"),
    ("mics, 2 x 2", "mics", {"shard_size": 2}, "hsdp"),
]


def line(row, ours, theirs):
    name, _, _, kind = row
    middle = lambda runs, key: statistics.median(r[key] for r in runs)
    ratio = statistics.median(a["step"] / b["step"] for a, b in zip(ours, theirs)) if theirs else None
    memory = statistics.median(a["rss"] / b["rss"] for a, b in zip(ours, theirs)) if theirs else None
    mib = 2**20
    beside = f"{kind} | {ratio:.2f} | {memory:.2f}" if theirs else "- | |"
    return (f"| {name} | {middle(ours, 'step'):.3f} | {middle(ours, 'sent') / mib:.2f} | "
            f"{middle(ours, 'sent_forecast') / mib:.2f} | {middle(ours, 'rss') / mib:.0f} | "
            f"{middle(ours, 'rss') / middle(ours, 'forecast'):.3f} | {beside} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="?", default="tiny", choices=bench.WORKLOADS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--plugin", nargs="*", default=[])
    parser.add_argument("--alone", action="store_true")
    args = parser.parse_args()
    rows = [r for r in ROWS if not args.only or any(part in r[0] for part in args.only)]
    rows += [(os.path.basename(p).removesuffix(".so"), os.path.abspath(p), {}, None) for p in args.plugin]
    ours, theirs = {r[0]: [] for r in rows}, {r[0]: [] for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        bench.make_data(folder, args.workload)
        for _ in range(args.turns):
            for name, plugin, options, kind in rows:
                run = bench.Run(folder, args.workload, args.steps, RANKS)
                ours[name].append(bench.run_shale(run, plugin, options))
                if kind and not args.alone:
                    theirs[name].append(bench.run_peer(run, kind))
    print(f"{args.workload}: {RANKS} ranks, {args.turns} turns of {args.steps} steps, torch {torch.__version__}\n")
    print("| strategy | s/step | MiB sent a step and rank | forecast | peak RSS, MiB | measured / forecast "
          "| beside | time | memory |\n|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(line(row, ours[row[0]], theirs[row[0]]))


if __name__ == "__main__":
    main()

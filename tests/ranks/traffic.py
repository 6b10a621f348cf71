"""What a step sends by its strategy's definition, split by where it goes: to another host, or to a rank of the same.

Weights and gradient shards go straight from each member of a group to each other member, whole gradients and gradient
shards of replicas round a ring (Gloo's all-reduce): every member passes 2 (n-1)/n of the bytes on to the next.
"""
import math

import tool

ALIGN = 64  # elements: what a rank owns of a unit is a multiple of this


def unit_sizes(config):
    """Parameters of the embedding, of each layer, and of the final norm with the head."""
    count = {}
    for name, shape in tool.model_shapes(config):
        unit = name.rsplit(".", 1)[0] if "embed" in name else "final"
        unit = name.split(".")[2] if ".layers." in name else unit
        count[unit] = count.get(unit, 0) + math.prod(shape)
    layers = [count[str(i)] for i in range(config["num_hidden_layers"])]
    return [count["model.embed_tokens"], *layers, count["final"]]


class Job:
    """Ranks that fill hosts one after the other."""

    def __init__(self, hosts, per_host):
        self.world, self.per_host = hosts * per_host, per_host
        ranks = range(self.world)
        self.all, self.alone = [list(ranks)], [[r] for r in ranks]
        self.blocks = [list(ranks[at:at + per_host]) for at in ranks[::per_host]]  # the ranks of a host
        self.strides = [list(ranks[at::per_host]) for at in range(per_host)]  # one of each host

    def crosses(self, a, b):
        return a // self.per_host != b // self.per_host

    def pairs(self, groups, piece):
        """(crossing, staying) bytes of one exchange in which every member sends `piece` bytes to every other."""
        sent = [self.crosses(a, b) for group in groups for a in group for b in group if a != b]
        return piece * sum(sent), piece * (len(sent) - sum(sent))

    def ring(self, groups, size):
        """The same for an all-reduce of `size` bytes in every group."""
        sent = [self.crosses(a, b) for group in groups if len(group) > 1 for a, b in zip(group, group[1:] + group[:1])]
        n = len(groups[0])
        return 2 * (n - 1) * size // n * sum(sent), 2 * (n - 1) * size // n * (len(sent) - sum(sent))


def plan_of(plugin, job):
    """(shard groups, replica groups, where layers are gathered again for their backward, if they are)."""
    return {"no_shard": (job.alone, job.all, []), "full_shard": (job.all, job.alone, job.all),
            "full_shard, reshard_size": (job.all, job.alone, job.blocks),
            "mics, all ranks": (job.all, job.alone, job.all), "shard_grad_op": (job.all, job.alone, []),
            "zero1": (job.all, job.alone, []), "zero2": (job.all, job.alone, []),
            "hybrid_shard": (job.blocks, job.strides, job.blocks), "mics": (job.blocks, job.strides, job.blocks),
            "hybrid_shard_zero2": (job.blocks, job.strides, [])}[plugin]


def add(*parts):
    return tuple(map(sum, zip(*parts)))


def gather_bytes(plugin, job, groups, full):
    """(crossing, staying) bytes of gathering `full` bytes in each group."""
    piece = full // len(groups[0])
    if plugin != "mics, all ranks":
        return job.pairs(groups, piece)
    # Between ranks of equal place first; then every host spreads what each of its ranks got.
    return add(job.pairs(job.strides, piece), job.pairs(job.blocks, piece * len(job.blocks)))


def step_bytes(plugin, job, sizes, gather=4, reduce=4, reductions=1, replica_sums=1):
    """(crossing, staying) bytes of a step. gather, reduce: bytes of an element on its way; reductions, replica_sums:
    how often a step sums gradients inside a shard group, and shards of them over the replicas."""
    shards, replicas, again = plan_of(plugin, job)
    ways = len(shards[0])
    slots, layers = 2, len(sizes) - 2  # with prefetch 1 the last two layers are still there when their backward comes
    sent = [(0, 0)]
    for unit, size in enumerate(sizes):
        chunk = size if ways == 1 else (-(-size // ways) + ALIGN - 1) // ALIGN * ALIGN
        sent.append(gather_bytes(plugin, job, shards, chunk * ways * gather))
        if again and 0 < unit <= layers - slots:
            sent.append(gather_bytes(plugin, job, again, chunk * ways * gather))
        sent += [job.pairs(shards, chunk * reduce)] * reductions + [job.ring(replicas, chunk * reduce)] * replica_sums
    return add(*sent)

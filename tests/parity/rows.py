"""The rows of the parity table: strategies, what PyTorch calls them, and what a step of each must send."""
import dataclasses
import typing

SLOTS, ALIGN = 2, 64  # of weights: prefetch + 1; shards are cut to multiples of this many elements by default
WIDTHS = {"float64": (8, 8), "float32": (4, 4), "bf16_mixed": (2, 4)}  # of weights and gradients on the wire


@dataclasses.dataclass
class World:
    name: str
    ranks: int
    hosts: int = 1

    @property
    def of_node(self):
        return self.ranks // self.hosts


WORLDS = [World("1", 1), World("2", 2), World("4", 4), World("2x2", 4, 2)]


def everybody(world):
    return world.ranks


def nobody(world):
    return 1


def node(world):
    return world.of_node


@dataclasses.dataclass
class Row:
    name: str
    theirs: typing.Callable  # (World, bf16) -> kind in reference.py
    shard: typing.Callable = everybody  # World -> ranks that split the model
    keeps: bool = False  # weights stay in place through backward
    late: bool = False  # gradients are reduced once a step, not after each micro-step
    plugin: str = ""  # the name's first word if empty
    options: typing.Callable = lambda world: {}
    inside: typing.Callable = everybody  # World -> ranks among which weights are gathered again
    whole: int = 0  # units with fewer elements stay whole on every rank
    together: int = 1  # layers in a unit

    def __post_init__(self):
        self.plugin = self.plugin or self.name.split()[0]

    def against(self, world, bf16):
        return "single" if world.ranks == 1 else self.theirs(world, bf16)


def always(kind):
    return lambda world, bf16: kind


def on_mesh(flat, mesh):
    return lambda world, bf16: mesh if world.hosts > 1 else flat


def pair(world):
    return min(2, world.ranks)


def mics_shard(world):
    """Replicas of pairs on one host; on two, a shard group over both, which is gathered in two levels."""
    return world.ranks if world.hosts > 1 else pair(world)


ROWS = [
    Row("no_shard", lambda world, bf16: "fsdp1" if bf16 else "ddp", nobody, keeps=True),
    Row("zero1", lambda world, bf16: "single" if bf16 else "zero1", keeps=True, late=True),
    Row("zero2", always("single"), keeps=True),
    Row("shard_grad_op", always("fsdp2_keep"), keeps=True),
    Row("full_shard", always("fsdp2")),
    Row("full_shard reshard_size=2", lambda world, bf16: "fsdp2_inside2" if world.ranks > 2 else "fsdp2", inside=pair,
        options=lambda world: {"reshard_size": pair(world)}),
    Row("full_shard min_shard_numel", always("single"), whole=3000, options=lambda world: {"min_shard_numel": 3000}),
    Row("full_shard layers_per_gather=2", always("fsdp2_pairs"), together=2,
        options=lambda world: {"layers_per_gather": 2}),
    Row("hybrid_shard", on_mesh("fsdp2", "hsdp"), node),
    Row("hybrid_shard_zero2", on_mesh("fsdp2_keep", "hsdp_keep"), node, keeps=True),
    Row("mics", lambda world, bf16: "hsdp" if world.name == "4" else "fsdp2", mics_shard,
        options=lambda world: {"shard_size": mics_shard(world)}),
]


def units(row, shape):
    """Elements of each unit: embedding, layers, final norm and head."""
    head = shape.dim // shape.heads
    attention = shape.dim * head * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.dim * shape.ffn + 2 * shape.dim
    layers = [min(row.together, shape.layers - i) * layer for i in range(0, shape.layers, row.together)]
    return [shape.vocab * shape.dim] + layers + [shape.dim + shape.vocab * shape.dim]


def gathers_again(row, unit, n_units, micro_steps):
    """How often a step gathers a unit after the first time. Ends and kept weights never. L layers take turns in k
    slots: backward finds the last k of them in place, and a later micro-step's forward the first, which backward has
    left."""
    layer, layers = unit - 1, n_units - 2
    if row.keeps or not 0 <= layer < layers:
        return 0
    backward, forward = layer < layers - SLOTS, layer >= SLOTS
    return backward + (micro_steps - 1) * (forward + backward)


def of_gather(row, world, chunk, shard):
    """[calls, elements that a rank sends] of a unit's first gather and of a later one."""
    first = 1, (shard - 1) * chunk
    inside = min(row.inside(world), shard)
    again = 1, (inside - 1) * (shard // inside) * chunk
    if row.plugin == "mics" and world.hosts > 1:  # across the hosts, then each host's part inside it
        first = again = 1 + world.hosts, (shard - 1) * chunk
    return first, again


def of_unit(row, world, widths, elements, times):
    """[(operation, times, calls each, bytes each)] of a step. S ranks share the unit's P bytes and R = N/S replicas its
    gradients: a gather or a reduction sends (S-1)/S P, a sum over replicas 2 (R-1)/R P/S. A gather inside a group of k
    that has kept the pieces sends (k-1)/k P. times: of gathers after the first, and of sums."""
    whole = elements < row.whole
    shard = 1 if whole else row.shard(world)
    replicas = world.ranks // shard
    weight, grad = widths
    again, sums = times
    chunk = elements if shard == 1 else -(-elements // (shard * ALIGN)) * ALIGN
    if shard > 1:
        (calls, sent), (calls_again, sent_again) = of_gather(row, world, chunk, shard)
        yield "all_gather", 1, calls, sent * weight
        yield "all_gather", again, calls_again, sent_again * weight
        yield "reduce_scatter", sums, 1, (shard - 1) * chunk * grad
    if replicas > 1:
        yield "all_reduce", sums if whole else 1, 1, 2 * chunk * grad * (replicas - 1) // replicas


def traffic(row, world, micro_steps, shape, precision):
    """{operation: {"calls", "bytes"}} that a rank sends in a step that follows another."""
    out = {}
    sizes = units(row, shape)
    for unit, elements in enumerate(sizes):
        times = gathers_again(row, unit, len(sizes), micro_steps), 1 if row.late else micro_steps
        for kind, n, calls, sent in of_unit(row, world, WIDTHS[precision], elements, times):
            total = out.setdefault(kind, {"calls": 0, "bytes": 0})
            total["calls"] += n * calls
            total["bytes"] += n * sent
    return out

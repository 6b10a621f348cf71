"""The rows of the parity table: strategies, what PyTorch calls them, and what a step of each must send."""
import dataclasses
import typing

LAYERS, SLOTS, ALIGN = 3, 2, 64  # reference.Shape; prefetch + 1 slots for weights; what shards are cut to by default


@dataclasses.dataclass
class World:
    name: str
    ranks: int
    hosts: int = 1

    @property
    def of_node(self):
        return self.ranks // self.hosts


WORLDS = [World("1", 1), World("2", 2), World("4", 4), World("2x2", 4, 2)]


@dataclasses.dataclass
class Row:
    name: str
    plugin: str
    options: dict
    theirs: typing.Callable  # (World, bf16) -> kind in reference.py
    shard: typing.Callable  # World -> ranks that split the model
    keeps: bool  # weights stay in place through backward
    late: bool = False  # gradients are reduced once a step, not after each micro-step

    def against(self, world, bf16):
        return "single" if world.ranks == 1 else self.theirs(world, bf16)


def everybody(world):
    return world.ranks


def nobody(world):
    return 1


def node(world):
    return world.of_node


def always(kind):
    return lambda world, bf16: kind


def on_mesh(flat, mesh):
    return lambda world, bf16: mesh if world.hosts > 1 else flat


ROWS = [
    Row("no_shard", "no_shard", {}, lambda world, bf16: "fsdp1" if bf16 else "ddp", nobody, keeps=True),
    Row("zero1", "zero1", {}, lambda world, bf16: "single" if bf16 else "zero1", everybody, keeps=True, late=True),
    Row("zero2", "zero2", {}, always("single"), everybody, keeps=True),
    Row("shard_grad_op", "shard_grad_op", {}, always("fsdp2_keep"), everybody, keeps=True),
    Row("full_shard", "full_shard", {}, always("fsdp2"), everybody, keeps=False),
    Row("hybrid_shard", "hybrid_shard", {}, on_mesh("fsdp2", "hsdp"), node, keeps=False),
    Row("hybrid_shard_zero2", "hybrid_shard_zero2", {}, on_mesh("fsdp2_keep", "hsdp_keep"), node, keeps=True),
]


def units(shape):
    """Elements of each unit: embedding, layers, final norm and head."""
    head = shape.dim // shape.heads
    attention = shape.dim * head * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.dim * shape.ffn + 2 * shape.dim
    return [shape.vocab * shape.dim] + [layer] * shape.layers + [shape.dim + shape.vocab * shape.dim]


def gathers(row, unit, micro_steps):
    """How often a step gathers a unit. Ends and kept weights once. Layers take turns in SLOTS: backward finds the last
    SLOTS of them in place, and a later micro-step's forward the first, which backward has left."""
    layer = unit - 1
    if row.keeps or not 0 <= layer < LAYERS:
        return 1
    again = layer < LAYERS - SLOTS
    return 1 + again + (micro_steps - 1) * ((layer >= SLOTS) + again)


WIDTHS = {"float64": (8, 8), "float32": (4, 4), "bf16_mixed": (2, 4)}  # of weights and gradients on the wire


def traffic(row, world, micro_steps, shape, precision):
    """{operation: {"calls", "bytes"}} that a rank sends in a step that follows another. S ranks share a unit of P bytes
    and R = N/S replicas its gradients: a gather or a reduction sends (S-1)/S P, a sum over replicas 2 (R-1)/R P/S."""
    shard = row.shard(world)
    replicas = world.ranks // shard
    weight, grad = WIDTHS[precision]
    out = {}
    for unit, elements in enumerate(units(shape)):
        chunk = elements if shard == 1 else -(-elements // (shard * ALIGN)) * ALIGN
        sent = {}
        if shard > 1:
            sent["all_gather"] = gathers(row, unit, micro_steps), (shard - 1) * chunk * weight
            sent["reduce_scatter"] = 1 if row.late else micro_steps, (shard - 1) * chunk * grad
        if replicas > 1:
            sent["all_reduce"] = 1, 2 * chunk * grad * (replicas - 1) // replicas
        for kind, (times, bytes_each) in sent.items():
            total = out.setdefault(kind, {"calls": 0, "bytes": 0})
            total["calls"] += times
            total["bytes"] += times * bytes_each
    return out

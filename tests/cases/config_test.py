"""C9, C12, C17, C30, C32: settings and plugins that cannot be; found before a rank or a model is there."""
import os
import re
import subprocess
import unittest

import torch

import fixtures
from fixtures import CONFIG, ROOT, put

SPLIT = os.path.join(ROOT, "examples", "smallest_c", "split.c")


class Settings(fixtures.Case):
    def refused_text(self, text, *words):
        """A file with the settings of R2 and some more lines in front or behind."""
        config = self.config(self.place())
        with open(config) as f:
            good = f.read()
        put(config, text.replace("<R2>", good))
        return self.hold_refusal(self.shale(config, 2, limit=fixtures.LIM), CONFIG, config, *words)

    def test_C12_keys_that_do_not_exist(self):
        self.refused_text("<R2>\n[checkpoint]\nintervall = 5\n", "[checkpoint] ", "intervall", "mean interval?")
        self.refused_text("<R2>\n[checkpoint]\nkeep-latest-k = 5\n", "keep-latest-k", "mean keep_latest_k?")
        self.refused_text("<R2>\n[checkpoint]\nseq_len = 5\n", "[checkpoint] ", "seq_len", "[training]")
        self.refused_text("<R2>\n[chekpoint]\ninterval = 5\n", "chekpoint", "mean [checkpoint]?")
        self.refused_text("steps = 5\n<R2>", "steps", "[training]")
        self.refused_text("<R2>\n[training]\nsteps = 5\n", "training")

    def test_C12_all_that_is_wrong_is_told_at_once_with_its_place(self):
        text = self.refused_text("<R2>\n[checkpoint]\nintervall = 5\nenabled = true\n[activation_checkpoint]\nmode=1\n",
                                 "3 errors", "mean interval?", "mean enable?", "mode")
        self.assertEqual(len(re.findall(r"run\.toml:\d+:\d+: ", text)), 3, text)

    def test_C12_the_command_line_and_the_environment_are_held_to_the_same(self):
        config = self.config(self.place())
        outcome = self.shale(config, 2, "--training.step=5", limit=fixtures.LIM)
        self.hold_refusal(outcome, CONFIG, "--training.step", "mean steps?")
        self.refused(CONFIG, "SHALE_TRAINING_STEP", env={"SHALE_TRAINING_STEP": "5"})

    def test_C12_options_of_a_plugin_are_its_own(self):
        self.refused(CONFIG, "prefetsh", "mean prefetch?", "full_shard", sharding__options__prefetsh=1)
        self.refused(CONFIG, "prefetch", "uniform", precision__options__prefetch=1)
        self.refused(CONFIG, "prefetch", "9", "8", sharding__options__prefetch=9)

    def test_C09_precisions_that_do_not_exist(self):
        for value in ("float23", "FP16", "fp16", 16):
            with self.subTest(value=value):
                self.refused(CONFIG, "dtype", value, "float32", "float64", precision__options__dtype=value)
        self.refused(CONFIG, "bf6", "bf16_mixed", "uniform", precision__plugin="bf6")
        self.refused(CONFIG, "plugin", precision__plugin=16)

    @unittest.skipIf(torch.cuda.is_available(), "a GPU is there")
    def test_C09_a_device_that_is_not_there(self):
        self.refused(CONFIG, 'training.device = "cpu"', training__device="cuda", precision__plugin="bf16_mixed")

    def test_C17_numbers_that_do_not_multiply_up(self):
        two = self.trained(training__global_batch_size=8, training__steps=1)
        self.assertEqual(self.metrics(two)[0]["tokens"], 8 * 16)
        self.assertEqual(len(re.findall(r"\b8 a step\b", two.out)), 1, two.out)
        self.refused(CONFIG, "global_batch_size 8", "local_batch_size 2 x 3 ranks = 6", nproc=3,
                     training__global_batch_size=8)
        derived = self.trained(3, training__steps=1)
        self.assertEqual(len(re.findall(r"\b6 a step\b", derived.out)), 1, derived.out)
        for value in (0, -2):
            self.refused(CONFIG, "global_batch_size", value, training__global_batch_size=value)
            self.refused(CONFIG, "local_batch_size", value, training__local_batch_size=value)
        self.refused(CONFIG, "global_batch_size", "2.5", training__global_batch_size=2.5)

    def test_C30_groups_that_cannot_be(self):
        # The built-in strategies have no size: one splits over all ranks, the other over none.
        self.refused(CONFIG, "shard_size", "full_shard", sharding__options__shard_size=8)
        self.refused(CONFIG, "shard_size", "no_shard", sharding__plugin="no_shard", sharding__options__shard_size=1)
        self.refused(CONFIG, "hybrid", "full_shard", "no_shard", sharding__plugin="hybrid")
        # A strategy of one's own that has: its refusal names both numbers.
        split = build(self.place(), lambda text: text)
        self.refused(CONFIG, "ways", "divide", "3 ranks", "2", nproc=3, sharding__plugin=split,
                     sharding__options__ways=2)
        self.refused(CONFIG, "ways", "0", sharding__plugin=split, sharding__options__ways=0)


class Plugins(fixtures.Case):
    """C32: each is the smallest plugin with one change."""

    def refused_plugin(self, path, *words, **changes):
        return self.refused(CONFIG, *words, sharding__plugin=path, **changes)

    def built(self, *replacements, more=None):
        def change(text):
            for old, new in replacements:
                assert old in text, old
                text = text.replace(old, new)
            return text
        return build(self.place(), change, more)

    def test_C32_files_that_are_no_plugins(self):
        missing = self.place() + "/missing.so"
        self.refused_plugin(missing, missing, "No such file")
        text = put(self.place() + "/text.so", "not a library\n")
        self.refused_plugin(text, text, "not a shared library")
        self.refused_plugin(self.place(), "not a file")
        nameless = self.built(("shale_plugin_entry_v1(", "something_else("))
        self.refused_plugin(nameless, nameless, "does not export shale_plugin_entry_v1")

    def test_C32_another_generation(self):
        other = self.built(("sizeof plugin, SHALE_ABI_MAJOR", "sizeof plugin, 9"))
        self.refused_plugin(other, other, "ABI 9.1", "this shale has 0.1")
        newer = self.built(("SHALE_ABI_MAJOR, 1,", "SHALE_ABI_MAJOR, 7,"), ("SHALE_ABI_MINOR,", "8,"))
        self.refused_plugin(newer, newer, "ABI 0.8", "from 0.7", "this shale has 0.1")

    def test_C32_a_symbol_nobody_has(self):
        unresolved = self.built(("(void)host;", "extern void nobody_has_this(void);\n  nobody_has_this();"))
        self.refused_plugin(unresolved, unresolved, "nobody_has_this")

    def test_C32_an_error_on_one_rank_only(self):
        picky = self.built(("  *p = (struct split){host, config};",
                            "  *p = (struct split){host, config};\n"
                            "  const shale_run* run = host->get_service(host->ctx, SHALE_RUN_SERVICE);\n"
                            "  if (run && run->rank == 1)\n"
                            "    return shale_fail(host, SHALE_BAD_OPTION, d->id, \"not on this rank\");"))
        self.refused_plugin(picky, "split", "not on this rank", "rank 1 of 2")

    def test_C32_an_exception_across_the_boundary(self):
        throws = '#include <stdexcept>\nextern "C" void boom() { throw std::runtime_error("boom"); }\n'
        places = {"entry": "(void)host;", "create": "struct split* p = malloc(sizeof *p);",
                  "get_interface": "(void)self;", "plan": "const struct split* p = self;"}
        for place, line in places.items():
            path = self.built((line, line + "\n  extern void boom(void);\n  boom();"), more=throws)
            with self.subTest(place=place):
                self.refused_plugin(path, path, "boom", "exception")


def build(folder, change, more=None):
    """split.c, changed, as a plugin; more: C++ to be linked with it."""
    with open(SPLIT) as f:
        put(folder + "/plugin.c", change(f.read()))
    include = os.path.join(ROOT, "sdk", "include")
    flags = ["-shared", "-fPIC", "-O1", "-fexceptions", "-fvisibility=hidden", "-I", include]
    objects = [folder + "/plugin.o"]
    subprocess.run(["gcc", "-c", *flags, folder + "/plugin.c", "-o", objects[0]], check=True)
    if more:
        objects.append(put(folder + "/more.cpp", more))
    path = folder + "/plugin.so"
    subprocess.run(["g++" if more else "gcc", *flags, *objects, "-o", path], check=True)
    return path


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Where a run starts from, and what it keeps: C10, C15, C24, C25."""
import ctypes
import ctypes.util
import json
import os
import resource
import shutil
import signal
import subprocess
import unittest

import numpy as np

import tool


class StartC15(tool.RunTest):
    def test_a_mistyped_path_ends_before_training(self):
        for name, path in (("typo", self.root + "/nowhere/step-00000010"), ("not-a-snapshot", self.root + "/llama"),
                           ("a-file", self.root + "/tokens.bin")):
            with self.subTest(name):
                run = self.train(name, code=4, checkpoint__resume=path)
                self.assertIn(path, run.err)
                self.assertEqual(run.rows, [])
                self.assertFalse(os.path.exists(run.folder), "nothing is left behind")

    def test_a_folder_that_cannot_be_made(self):
        run = self.train("no-folder", code=6, job__dump_folder=self.root + "/tokens.bin/run")
        self.assertIn("[job] dump_folder", run.err)

    def test_auto_on_an_empty_folder_starts_at_step_0_and_says_so_once(self):
        run = self.train("empty-folder", checkpoint__resume="auto")
        self.assertEqual(run.out.count("no snapshot yet, starting at step 0"), 1)
        self.assertEqual(min(run.losses), 1)

    def test_old_data_is_refused_unless_overwritten_and_auto_then_takes_the_new_run(self):
        old = self.train("folder", training__steps=10, checkpoint__interval=5)
        self.assertEqual(old.snapshots, [5, 10])
        foreign = [old.folder + "/notes.txt", old.folder + "/checkpoints/notes.txt",
                   old.folder + "/checkpoints/step-5/x"]
        os.mkdir(old.folder + "/checkpoints/step-5")
        for path in foreign:
            tool.write_text(path, "mine")
        os.mkdir(old.folder + "/checkpoints/.saving-00000011")

        refused = self.train("folder", code=2, debug__seed=99)
        self.assertIn("holds an earlier run", refused.err)
        self.assertIn("overwrite", refused.err)
        self.assertEqual((refused.losses, refused.snapshots), (old.losses, [5, 10]))

        new = self.train("folder", training__steps=4, training__shuffle=True, debug__seed=99, job__overwrite=True,
                         lr_scheduler__total_steps=10)
        self.assertEqual(new.snapshots, [4], "no old snapshot is left")
        self.assertEqual(sorted(new.losses), [1, 2, 3, 4])
        self.assertEqual([p for p in foreign if not os.path.exists(p)], [], "somebody else's files stay")
        self.assertEqual([n for n in os.listdir(old.folder + "/checkpoints") if n.startswith(".")], [])

        further = self.train("folder", training__steps=6, training__shuffle=True, debug__seed=99,
                             checkpoint__resume="auto", lr_scheduler__total_steps=10)
        straight = self.train("straight", training__steps=6, training__shuffle=True, debug__seed=99,
                              lr_scheduler__total_steps=10)
        self.assertEqual(further.losses, straight.losses)

    def test_auto_does_not_pass_over_a_damaged_snapshot(self):
        for whole, told in (([2], "to go on from .*step-00000002"), ([], "to go on from the beginning")):
            with self.subTest(whole=whole):
                name = f"damaged-{len(whole)}"
                run = self.train(name, training__steps=4, checkpoint__interval=2 if whole else 4)
                self.assertEqual(run.snapshots, whole + [4])
                data = tool.snapshot_path(run.folder, 4) + "/data-00001-of-00002.safetensors"
                tool.write_text(data, tool.read_text(data, "rb")[:-1], "wb")
                again = self.train(name, code=4, training__steps=6, checkpoint__resume="auto")
                self.assertRegex(again.err, "step-00000004 is newer than every whole snapshot .*" + told)
                os.rename(tool.snapshot_path(run.folder, 4), run.folder + "/checkpoints/damaged")
                again = self.train(name, training__steps=6, checkpoint__resume="auto")
                self.assertEqual(sorted(again.losses), [1, 2, 3, 4, 5, 6])

    def test_two_runs_never_mix_in_a_folder(self):
        one = self.train("one", training__steps=6, checkpoint__interval=2)
        self.train("other", training__steps=2)
        # Another run's folder, also with a snapshot named.
        taken = self.train("other", code=2, checkpoint__resume=tool.snapshot_path(one.folder, 4))
        self.assertIn("holds an earlier run", taken.err)
        # Going back in one's own folder leaves no later snapshot that "auto" would take.
        back = self.train("one", code=2, checkpoint__resume=tool.snapshot_path(one.folder, 2))
        self.assertRegex(back.err, r"goes back to step 2, but .* holds 2 later snapshot")
        back = self.train("one", training__steps=3, checkpoint__resume=tool.snapshot_path(one.folder, 2) + "/",
                          job__overwrite=True, lr_scheduler__total_steps=6)
        self.assertEqual(back.snapshots, [2, 3])
        self.assertEqual(back.losses, {s: l for s, l in one.losses.items() if s <= 3})

    def test_the_configuration_itself_is_never_overwritten(self):
        os.mkdir(self.root + "/self")
        path = self.config("self")
        os.rename(path, self.root + "/self/config.toml")
        before = tool.read_text(self.root + "/self/config.toml")
        done = self.shale("train", self.root + "/self/config.toml", "--job.overwrite=true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("would overwrite", done.stderr)
        self.assertEqual(tool.read_text(self.root + "/self/config.toml"), before)

    def test_initial_load_takes_the_weights_or_everything(self):
        first = self.train("base", training__steps=4, lr_scheduler__total_steps=8)
        straight = self.train("base-straight", training__steps=8)
        snapshot = tool.snapshot_path(first.folder, 4)
        weights = self.train("from-weights", training__steps=1, optimizer__lr=0.0,
                             checkpoint__initial_load_path=snapshot)
        self.assertEqual(sorted(weights.losses), [1])
        self.assert_same_tensors(tool.read_snapshot(tool.snapshot_path(weights.folder, 1)),
                                 tool.read_snapshot(snapshot), "weights")
        everything = self.train("from-everything", checkpoint__initial_load_path=snapshot,
                                checkpoint__initial_load_model_only=False)
        self.assertEqual(everything.losses, {s: l for s, l in straight.losses.items() if s > 4})
        # Once there is a snapshot of the run itself, the initial one is not needed any more.
        gone = self.root + "/gone"
        shutil.copytree(snapshot, gone)
        self.train("restart", training__steps=2, checkpoint__initial_load_path=gone)
        shutil.rmtree(gone)
        again = self.train("restart", training__steps=3, checkpoint__initial_load_path=gone, checkpoint__resume="auto")
        self.assertEqual(sorted(again.losses), [1, 2, 3])
        missing = self.train("nowhere-to-start", code=4, checkpoint__initial_load_path=gone)
        self.assertIn(gone, missing.err)

    def test_a_finished_run_resumed_has_nothing_to_do(self):
        first = self.train("finished")
        again = self.train("finished", checkpoint__resume="auto")
        self.assertEqual(again.losses, first.losses)
        self.assertEqual(again.snapshots, [8])
        self.assertIn("nothing left to do", again.out)


class RetentionC24(tool.RunTest):
    settings = {"checkpoint.interval": 1, "lr_scheduler.total_steps": 12}

    def test_the_newest_by_number_are_kept_and_foreign_entries_stay(self):
        name, folder = "keep", self.root + "/keep"
        os.makedirs(folder + "/checkpoints/step-9/deep")
        os.makedirs(folder + "/checkpoints/step-00000099.old")
        tool.write_text(folder + "/checkpoints/step-00000012.txt", "mine")
        foreign = sorted(os.listdir(folder + "/checkpoints"))

        def entries():
            return sorted(e for e in os.listdir(folder + "/checkpoints") if e not in foreign)

        for steps in range(8, 13):  # 9 -> 10 gains a digit
            self.train(name, 1, training__steps=steps, checkpoint__keep_latest_k=2, checkpoint__resume="auto")
            self.assertEqual(entries(), [f"step-{s:08d}" for s in (steps - 1, steps)])
        self.train(name, 1, training__steps=13, checkpoint__keep_latest_k=1, checkpoint__resume="auto")
        self.assertEqual(entries(), ["step-00000013"])
        self.assertEqual(sorted(set(os.listdir(folder + "/checkpoints")) & set(foreign)), foreign)

    def test_zero_keeps_all(self):
        run = self.train("all", 2, training__steps=12, checkpoint__keep_latest_k=0)
        self.assertEqual(run.snapshots, list(range(1, 13)))

    def test_the_snapshot_that_the_run_came_from_is_protected(self):
        self.train("protected", 1, training__steps=1)
        start = tool.snapshot_path(self.root + "/protected", 1)
        run = self.train("protected", 1, training__steps=4, checkpoint__keep_latest_k=1, checkpoint__resume=start)
        self.assertEqual(run.snapshots, [1, 4])


class FullDisk(tool.RunTest):
    def test_a_save_that_fails_ends_the_run_and_leaves_nothing_half_done(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too long is then an error of write()
            resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 10, 50 << 10))

        config = self.config("full", training__steps=6, checkpoint__interval=2)
        done = subprocess.run([tool.SHALE, "train", config, "--nproc", "2"], capture_output=True, text=True,
                              timeout=tool.LIMIT, env=tool.environment(), cwd=self.root, preexec_fn=limit)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertEqual(done.stderr.count("E-io"), 1, done.stderr)
        self.assertRegex(done.stderr, r"\.saving-00000002/\S+\.safetensors: .*(File too large|no room)")
        self.assertEqual(os.listdir(self.root + "/full/checkpoints"), [])
        again = self.train("full", training__steps=6, checkpoint__interval=2, checkpoint__resume="auto")
        self.assertEqual(again.snapshots, [2, 4, 6])


class Digest(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3(data):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype, library.XXH3_128bits.argtypes = Digest, (ctypes.c_char_p, ctypes.c_size_t)
    digest = library.XXH3_128bits(data, len(data))
    return f"{digest.high:016x}{digest.low:016x}"


def remove_items(path, unwanted):
    """Takes items out of a snapshot's index and signs its manifest again."""
    index = json.loads(tool.read_text(path + "/index.json"))
    index["items"] = [item for item in index["items"] if not unwanted(item)]
    text = json.dumps(index).encode()
    tool.write_text(path + "/index.json", text, "wb")
    manifest = json.loads(tool.read_text(path + "/manifest.json"))
    for file in manifest["files"]:
        if file["name"] == "index.json":
            file["bytes"], file["hash"] = len(text), xxh3(text)
    del manifest["checksum"]
    signed = lambda: json.dumps(manifest, indent=1, sort_keys=True, separators=(",", ": ")) + "\n"
    manifest["checksum"] = xxh3(signed().encode())
    tool.write_text(path + "/manifest.json", signed())


class OtherModelC25(tool.RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, shape in (("deeper", {"layers": 3}), ("flatter", {"layers": 1}), ("wider", {"ffn": 64})):
            tool.write_model(f"{cls.root}/{name}", **shape)

    def load(self, name, key, code, model="llama", snapshot=None):
        """Resumes or starts from the snapshot; whatever is wrong is told before a step is made."""
        changes = {"model__hf_assets_path": f"{self.root}/{model}", f"checkpoint__{key}": snapshot or self.snapshot}
        run = self.train(name, code=code, training__steps=3, **changes)
        if code:
            self.assertEqual(run.losses, {})
        return run

    def setUp(self):
        folder = f"{self.root}/source"
        if not os.path.exists(folder):
            self.train("source", training__steps=2)
        self.snapshot = tool.snapshot_path(folder, 2)

    def test_other_depth_or_width_is_refused_by_name(self):
        for key in ("resume", "initial_load_path"):
            with self.subTest(key):
                run = self.load("deeper-" + key, key, 4, "deeper")
                self.assertRegex(run.err, r"9 parameter\(s\) of the model are not in the snapshot: "
                                          r"model\.layers\.2\.\S+, model\.layers\.2\.")
                run = self.load("flatter-" + key, key, 4, "flatter")
                self.assertRegex(run.err, r"9 parameter\(s\) of the snapshot are not in the model: "
                                          r"model\.layers\.1\.\S+, model\.layers\.1\.")
                run = self.load("wider-" + key, key, 4, "wider")
                self.assertRegex(run.err, r"\[(24, 56|56, 24)\].*\[(24, 64|64, 24)\]")

    def test_without_optimizer_state(self):
        stripped = self.root + "/stripped/step-00000002"
        shutil.copytree(self.snapshot, stripped)
        remove_items(stripped, lambda item: item["role"] == tool.OPTIMIZER)
        run = self.load("strict", "resume", 4, snapshot=stripped)
        self.assertIn("holds no optimizer state", run.err)
        self.assertIn("initial_load_path", run.err)
        run = self.load("weights-only", "initial_load_path", 0, snapshot=stripped)
        self.assertEqual(sorted(run.losses), [1, 2, 3])

    def test_never_a_part_of_the_state(self):
        cases = {
            "moment": (lambda i: i["name"] == "model.norm.weight" and i["key"] == "exp_avg_sq",
                       "exp_avg_sq of model.norm.weight is missing"),
            "weight": (lambda i: i["name"] == "lm_head.weight" and i["key"] == "weight",
                       "1 parameter(s) of the model are not in the snapshot: lm_head.weight"),
            "cursor": (lambda i: i["key"] == "data.next", "has no run state data.next"),
        }
        for name, (unwanted, told) in cases.items():
            with self.subTest(name):
                part = f"{self.root}/part-{name}/step-00000002"
                shutil.copytree(self.snapshot, part)
                remove_items(part, unwanted)
                self.assertIn(told, self.load("part-run-" + name, "resume", 4, snapshot=part).err)

    def test_a_damaged_snapshot_is_refused(self):
        for file in ("index.json", "manifest.json", "data-00000-of-00002.safetensors"):
            with self.subTest(file):
                broken = f"{self.root}/broken-{file}/step-00000002"
                shutil.copytree(self.snapshot, broken)
                data = tool.read_text(f"{broken}/{file}", "rb")
                tool.write_text(f"{broken}/{file}", data[:len(data) // 2], "wb")
                run = self.load("broken-run-" + file, "resume", 4, snapshot=broken)
                self.assertIn(file, run.err)


class OtherPrecision(tool.RunTest):
    def test_fewer_digits_are_told_more_are_not(self):
        wide = self.train("wide", training__steps=2, precision__options__dtype="float64")
        narrow = self.train("narrow", training__steps=4, lr_scheduler__total_steps=2,
                            checkpoint__resume=tool.snapshot_path(wide.folder, 2))
        self.assertRegex(narrow.err, r"\S+weight is saved as float64 and rounded to float32")
        self.assertEqual(sorted(narrow.losses), [3, 4])
        again = self.train("again", training__steps=6, lr_scheduler__total_steps=2,
                           precision__options__dtype="float64", checkpoint__resume=tool.snapshot_path(narrow.folder, 4))
        self.assertNotIn("rounded", again.err)


class MastersC10(tool.RunTest):
    def test_snapshots_keep_float32_masters_under_bf16(self):
        for mode in ("compute", "storage"):
            with self.subTest(mode=mode):
                run = self.train("bf16-" + mode, precision__plugin="bf16_mixed", precision__options__mode=mode)
                path = tool.snapshot_path(run.folder, 8)
                for role, key in ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg"), (tool.OPTIMIZER, "exp_avg_sq")):
                    tensors = tool.read_snapshot(path, role, key)
                    self.assertEqual({t.dtype for t in tensors.values()}, {np.dtype(np.float32)})
                # Real masters: most of them are no bfloat16 numbers.
                bits = tool.read_snapshot(path)["lm_head.weight"].view(np.uint32) & 0xffff
                self.assertGreater((bits != 0).mean(), 0.9)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Runs of the binary that keep their snapshots in the torch format."""
import os
import sys
import unittest

import numpy as np
import torch
from safetensors.torch import load_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runs"))
import tool  # noqa: E402


class TorchFormat(tool.RunTest):
    settings = {"checkpoint.plugin": "torch", "sharding.plugin": "no_shard"}

    def saved(self, run, step):
        return torch.load(os.path.join(tool.snapshot_path(run.folder, step), "checkpoint.pt"), weights_only=True)

    def test_a_resumed_run_is_the_undisturbed_one_and_pytorch_has_its_weights(self):
        schedule = {"lr_scheduler__total_steps": 8}
        whole = self.train("whole", nproc=1, checkpoint__interval=4, **schedule)
        other = self.train("other", nproc=1, checkpoint__interval=4, checkpoint__plugin="sharded", **schedule)
        self.train("halves", nproc=1, training__steps=4, **schedule)
        resumed = self.train("halves", nproc=1, checkpoint__resume="auto", **schedule)
        self.assertEqual({s: resumed.losses[s] for s in (5, 6, 7, 8)}, {s: whole.losses[s] for s in (5, 6, 7, 8)})
        self.assertEqual(whole.losses, other.losses)
        state = self.saved(whole, 8)
        for name, tensor in tool.read_snapshot(tool.snapshot_path(other.folder, 8)).items():
            self.assertTrue(np.array_equal(state["model"][name].numpy(), tensor), name)
        for key in ("exp_avg", "exp_avg_sq"):
            moments = tool.read_snapshot(tool.snapshot_path(other.folder, 8), tool.OPTIMIZER, key)
            for name, tensor in moments.items():
                self.assertTrue(np.array_equal(state["optimizer"]["state"][name][key].numpy(), tensor), name)
        self.assertEqual(state["run"]["step"], 8)
        again = self.saved(resumed, 8)["model"]
        self.assertTrue(all(torch.equal(again[name], tensor) for name, tensor in state["model"].items()))

    def test_the_weights_are_those_of_the_hugging_face_folder_at_step_zero(self):
        run = self.train("first", nproc=1, training__steps=1, optimizer__lr=1e-30, optimizer__weight_decay=0.0)
        state, given = self.saved(run, 1)["model"], load_file(self.root + "/llama/model.safetensors")
        self.assertEqual(set(state), set(given))
        for name, tensor in given.items():
            self.assertTrue(torch.equal(state[name], tensor), name)

    def test_tensors_cut_over_ranks_are_whole_in_the_file(self):
        cut = {"nproc": 2, "sharding__plugin": "full_shard", "lr_scheduler__total_steps": 8}
        whole = self.train("cut", **cut)
        other = self.train("cut-other", checkpoint__plugin="sharded", **cut)
        self.train("cut-halves", training__steps=4, **cut)
        resumed = self.train("cut-halves", checkpoint__resume="auto", **cut)
        self.assertEqual(resumed.losses, {s: whole.losses[s] for s in resumed.losses})
        wanted = tool.read_snapshot(tool.snapshot_path(other.folder, 8))
        for run in (whole, resumed):
            state = self.saved(run, 8)["model"]
            self.assertEqual(set(state), set(wanted))
            for name, tensor in wanted.items():
                self.assertTrue(np.array_equal(state[name].numpy(), tensor), name)

    def convert(self, source, to, form):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        done = self.shale("checkpoint", "convert", source, to, "--format", form)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_snapshots_of_two_ranks_are_converted_there_and_back(self):
        run = self.train("two", nproc=2, checkpoint__plugin="sharded", sharding__plugin="full_shard")
        source, step = tool.snapshot_path(run.folder, 8), "step-00000008"
        for form in ("torch", "dcp"):
            self.convert(source, f"{self.root}/{form}/{step}", form)
            self.convert(f"{self.root}/{form}/{step}", f"{self.root}/from-{form}/{step}", "sharded")
            for role, key in ((tool.WEIGHT, "weight"), (tool.OPTIMIZER, "exp_avg_sq")):
                back = tool.read_snapshot(f"{self.root}/from-{form}/{step}", role, key)
                self.assert_same_tensors(back, tool.read_snapshot(source, role, key), form)
        state = torch.load(f"{self.root}/torch/{step}/checkpoint.pt", weights_only=True)
        for name, tensor in tool.read_snapshot(source).items():
            self.assertTrue(np.array_equal(state["model"][name].numpy(), tensor), name)

    def test_a_file_of_torch_save_is_converted(self):
        given = load_file(self.root + "/llama/model.safetensors")
        os.mkdir(self.root + "/given")
        torch.save(given, self.root + "/given/weights.pt")
        self.convert(self.root + "/given", self.root + "/taken/step-00000000", "sharded")
        back = tool.read_snapshot(self.root + "/taken/step-00000000")
        self.assert_same_tensors(back, {name: tensor.numpy() for name, tensor in given.items()}, "weights")


if __name__ == "__main__":
    unittest.main()

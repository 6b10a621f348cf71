"""The dcp format against torch.distributed.checkpoint itself: what one writes the other reads, bit by bit."""
import os
import pickle
import random
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

DRIVER, PLUGIN = os.environ["SHALE_DRIVER"], os.environ["SHALE_PLUGIN"]
WEIGHT, OPTIMIZER, RUN = 1, 2, 3


class Item:
    def __init__(self, line):
        role, self.name, self.key, self.kind, self.dtype, shape, _, self.value, self.how, data = line.split("\t")
        self.role, self.shape, self.bytes = int(role), [int(n) for n in shape.split(",")[:-1]], bytes.fromhex(data)


def drive(what, folder):
    done = subprocess.run([DRIVER, PLUGIN, what, folder], capture_output=True, text=True, timeout=60)
    if done.returncode:
        assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
        raise RuntimeError(done.stderr.strip())
    return done.stdout.splitlines()


def describe(folder):
    return {(i.role, i.name, i.key): i for i in map(Item, drive("describe", folder))}


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def tensors():
    torch.manual_seed(3)
    return {"rows": torch.rand(5, 3), "columns": torch.rand(4, 7, dtype=torch.float64), "few": torch.rand(2).bfloat16(),
            "scalar": torch.tensor(2.5), "int": torch.arange(9), "eight": torch.rand(6, 2).to(torch.float8_e4m3fn)}


def state_of(rank, world, folder):
    """A rank of a saved run: rows and columns cut, uneven and with empty shards, the rest on all ranks."""
    dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    place = {"rows": Shard(0), "columns": Shard(1), "few": Shard(0)}
    cut = {k: distribute_tensor(v, mesh, [place.get(k, Replicate())]) for k, v in tensors().items() if k != "eight"}
    optimizer = {"state": {"rows": {"step": torch.tensor(12.0), "exp_avg": cut["rows"]}},
                 "param_groups": [{"lr": 0.25, "betas": (0.9, 0.999), "fused": None, "params": ["rows"]}]}
    dcp.save({"model": cut | {"eight": tensors()["eight"]}, "optimizer": optimizer, "train_state": {"note": "x"},
              "dataloader": pickle.dumps({"a": 1})}, checkpoint_id=folder)
    dist.destroy_process_group()


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name + "/saved"
        os.mkdir(self.folder)

    def test_folders_of_one_and_more_ranks(self):
        for world in (1, 3):
            folder = f"{self.folder}{world}"
            torch.multiprocessing.spawn(state_of, (world, folder), nprocs=world)
            items = describe(folder)
            self.assertEqual({n for r, n, _ in items if r == WEIGHT}, set(tensors()))
            for name, tensor in tensors().items():
                item = items[WEIGHT, name, "weight"]
                self.assertEqual(item.shape, list(tensor.shape), name)
                self.assertEqual(item.bytes, raw(tensor), (name, world))
            self.assertEqual(items[OPTIMIZER, "rows", "step"].value, "int 12")
            self.assertEqual(items[OPTIMIZER, "rows", "exp_avg"].bytes, raw(tensors()["rows"]))
            self.assertEqual(items[RUN, "run", "train_state.note"].value, "text x")
            self.assertEqual(items[RUN, "run", "optimizer.param_groups.0.lr"].value, "float 0x1p-2")
            self.assertEqual(items[RUN, "run", "optimizer.param_groups.0.params.0"].value, "text rows")

    def test_what_shale_writes_comes_back(self):
        wrote = drive("save", self.folder)
        self.assertEqual(sorted(wrote), sorted(drive("describe", self.folder)))

    def test_pytorch_loads_what_shale_writes(self):
        items = [Item(line) for line in drive("save", self.folder)]
        path = self.folder + ".pt"
        dcp_to_torch_save(self.folder, path)
        state = torch.load(path, weights_only=True)
        template = {"model": {}, "optimizer": {"state": {}}}
        for item in items:
            if item.role == WEIGHT:
                template["model"][item.name] = torch.zeros_like(state["model"][item.name])
                self.assertEqual(raw(state["model"][item.name]), item.bytes, item.name)
            if item.role == OPTIMIZER and not item.value:
                at = template["optimizer"]["state"].setdefault(item.name, {})
                at[item.key] = torch.ones_like(state["optimizer"]["state"][item.name][item.key])
                self.assertEqual(raw(state["optimizer"]["state"][item.name][item.key]), item.bytes)
        self.assertEqual(state["run"]["large"], -9007199254740993)
        dcp.load(template, checkpoint_id=self.folder)
        for name, tensor in template["model"].items():
            self.assertEqual(raw(tensor), raw(state["model"][name]), name)
        for name, moments in template["optimizer"]["state"].items():
            for key, tensor in moments.items():
                self.assertEqual(raw(tensor), raw(state["optimizer"]["state"][name][key]), (name, key))

    def test_nothing_in_a_folder_is_executed(self):
        canary = self.folder + "/canary"

        class Evil:
            def __reduce__(self):
                return os.mkdir, (canary,)
        with open(self.folder + "/.metadata", "wb") as file:
            pickle.dump(Evil(), file)
        with self.assertRaisesRegex(RuntimeError, "mkdir', which is not allowed"):
            describe(self.folder)
        dcp.save({"a": Evil()}, checkpoint_id=self.folder)
        with self.assertRaisesRegex(RuntimeError, "mkdir', which is not allowed"):
            describe(self.folder)
        self.assertFalse(os.path.exists(canary))

    def test_metadata_that_does_not_fit_its_files(self):
        dcp.save({"a": torch.rand(3, 2), "b": torch.rand(4), "n": 3}, checkpoint_id=self.folder)
        path = self.folder + "/.metadata"
        with open(path, "rb") as file:
            good = file.read()

        def refusal(change):
            metadata = pickle.loads(good)
            infos = {index.fqn: info for index, info in metadata.storage_data.items()}
            change(metadata, infos)
            with open(path, "wb") as file:
                pickle.dump(metadata, file)
            with self.assertRaises(RuntimeError) as caught:
                describe(self.folder)
            return str(caught.exception)

        def swap(metadata, infos):
            infos["a"].offset, infos["b"].offset = infos["b"].offset, infos["a"].offset
            infos["a"].length, infos["b"].length = infos["b"].length, infos["a"].length

        def put(fqn, name, value):
            return lambda metadata, infos: setattr(infos[fqn], name, value)
        self.assertIn("has another shape or dtype than .metadata says", refusal(swap))
        self.assertIn("reaches past the end", refusal(put("a", "offset", 1 << 62)))
        self.assertIn("reaches past the end", refusal(put("a", "length", 1 << 62)))
        self.assertIn("an offset is no size", refusal(put("a", "offset", -1)))
        self.assertIn("end record of a zip file", refusal(put("a", "length", 500)))
        self.assertIn("names the file '../x', which is no plain file", refusal(put("a", "relative_path", "../x")))
        self.assertIn("is not in the folder", refusal(put("a", "relative_path", "x")))
        self.assertIn("a path is no text", refusal(put("a", "relative_path", 3)))
        self.assertIn("stored through a transform", refusal(put("a", "transform_descriptors", ["x"])))
        self.assertIn("a chunk of 'a' is in no file", refusal(lambda m, i: m.storage_data.pop(
            next(k for k in m.storage_data if k.fqn == "a"))))
        self.assertIn("'n' is in no file", refusal(lambda m, i: m.storage_data.pop(
            next(k for k in m.storage_data if k.fqn == "n"))))
        self.assertIn("has other dimensions than the tensor", refusal(
            lambda m, i: setattr(m.state_dict_metadata["a"], "size", torch.Size([6]))))
        self.assertIn("has another shape or dtype", refusal(
            lambda m, i: setattr(m.state_dict_metadata["a"].properties, "dtype", torch.int32)))
        self.assertIn("'storage_data' is no dict", refusal(lambda m, i: setattr(m, "storage_data", None)))

    def test_damaged_folders_are_refused_or_read(self):
        dcp.save({"model": {"a": torch.rand(3, 2), "b": torch.rand(4)}, "n": 3}, checkpoint_id=self.folder)
        draw, refused = random.Random(4), 0
        for name in (".metadata", "__0_0.distcp"):
            path = os.path.join(self.folder, name)
            with open(path, "rb") as file:
                good = file.read()
            for _ in range(150):
                bad = bytearray(good)
                at = draw.randrange(len(bad))
                if draw.random() < 0.3:
                    bad = bad[:at]
                else:
                    bad[at] = draw.randrange(256)
                with open(path, "wb") as file:
                    file.write(bad)
                try:
                    describe(self.folder)
                except RuntimeError:
                    refused += 1
            with open(path, "wb") as file:
                file.write(good)
        self.assertGreater(refused, 100)
        os.remove(path)
        with self.assertRaises(RuntimeError):
            describe(self.folder)


if __name__ == "__main__":
    unittest.main()

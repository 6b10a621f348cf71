"""The torch format against PyTorch itself: what one writes the other reads, bit by bit."""
import collections
import os
import pickle
import subprocess
import tempfile
import unittest
import zipfile

import torch

DRIVER, PLUGIN = os.environ["SHALE_DRIVER"], os.environ["SHALE_PLUGIN"]
WEIGHT, OPTIMIZER, RUN, PLUGIN_STATE, BUFFER = 1, 2, 3, 4, 5
DTYPES = {0x4001: torch.float64, 0x2002: torch.float32, 0x1003: torch.bfloat16, 0x1004: torch.float16,
          0x4011: torch.int64, 0x2012: torch.int32, 0x1013: torch.int16, 0x0814: torch.int8, 0x0815: torch.uint8,
          0x0816: torch.bool, 0x0805: torch.float8_e4m3fn, 0x0806: torch.float8_e5m2}


class Item:
    def __init__(self, line):
        role, self.name, self.key, self.kind, dtype, shape, self.alias, self.value, self.how, data = line.split("\t")
        self.role, self.kind, self.dtype = int(role), ("", "tensor", "bytes", "value")[int(self.kind)], int(dtype)
        self.shape, self.bytes = [int(n) for n in shape.split(",")[:-1]], bytes.fromhex(data)


def drive(what, folder):
    done = subprocess.run([DRIVER, PLUGIN, what, folder], capture_output=True, text=True, timeout=60)
    if done.returncode:
        assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
        raise RuntimeError(done.stderr.strip())
    return done.stdout.splitlines()


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "checkpoint.pt")

    def describe(self):
        items = [Item(line) for line in drive("describe", self.folder)]
        return {(i.role, i.name, i.key): i for i in items}

    def saved(self, state, **options):
        torch.save(state, self.path, **options)
        return self.describe()

    def refusal(self):
        with self.assertRaises(RuntimeError) as caught:
            self.describe()
        return str(caught.exception)

    def assert_same(self, item, tensor, how="raw"):
        self.assertEqual((DTYPES[item.dtype], item.shape), (tensor.dtype, list(tensor.shape)), item.name)
        self.assertEqual(item.bytes, raw(tensor), item.name)
        self.assertEqual((item.kind, item.how), ("tensor", how), item.name)

    # ---- written by shale
    def test_pytorch_loads_what_shale_writes(self):
        lines = [Item(line) for line in drive("save", self.folder)]
        for mapped in (False, True):
            state = torch.load(self.path, weights_only=True, mmap=mapped)
            self.assertEqual(set(state), {"model", "optimizer", "run", "plugins", "shale"})
            for item in lines:
                inside = {WEIGHT: lambda i: state["model"][i.name], BUFFER: lambda i: state["model"][i.name],
                          OPTIMIZER: lambda i: state["optimizer"]["state"][i.name][i.key],
                          RUN: lambda i: state["run"][i.key], PLUGIN_STATE: lambda i: state["plugins"][i.name][i.key]}
                value = inside[item.role](item)
                if item.alias:
                    self.assertEqual(value.data_ptr(), state["model"][item.alias].data_ptr())
                elif item.kind == "value":
                    kind, text = item.value.split(" ", 1)
                    want = {"int": int, "float": float.fromhex, "text": lambda t: t.replace("\\n", "\n")}[kind](text)
                    self.assertEqual((type(value), value), (type(want), want))
                else:
                    self.assertEqual(raw(value), item.bytes, item.name)
                    self.assertEqual((value.dtype, list(value.shape)), (DTYPES[item.dtype], item.shape))
                    self.assertTrue(value.is_contiguous())

    def test_what_shale_writes_comes_back(self):
        wrote = drive("save", self.folder)
        self.assertEqual(sorted(wrote), sorted(drive("describe", self.folder)))

    def test_the_file_is_a_sound_zip_with_aligned_data(self):
        drive("save", self.folder)
        with zipfile.ZipFile(self.path) as archive:
            self.assertIsNone(archive.testzip())
            names = archive.namelist()
            self.assertEqual(names[:2], ["checkpoint/data.pkl", "checkpoint/byteorder"])
        reader = torch._C.PyTorchFileReader(self.path)
        for name in names[2:-1]:
            self.assertEqual(reader.get_record_offset(name.removeprefix("checkpoint/")) % 64, 0, name)

    # ---- written by PyTorch
    def test_every_dtype_and_shape(self):
        torch.manual_seed(1)
        state = {}
        for k, dtype in enumerate(DTYPES.values()):
            for shape in ([], [1], [5, 7], [2, 3, 4], [1, 2, 1, 2, 1, 2, 1, 2]):
                state[f"t{k}.{len(shape)}"] = (torch.rand(shape) * 8 - 4).to(dtype)
            state[f"t{k}.none"] = torch.empty([0, 3], dtype=dtype)
        items = self.saved(state)
        self.assertEqual(set(items), {(WEIGHT, name, "weight") for name in state})
        for name, tensor in state.items():
            self.assert_same(items[WEIGHT, name, "weight"], tensor)

    def test_views_are_what_they_show(self):
        base = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
        state = {"a": base[1:], "b": base[1], "c": base.transpose(0, 2), "d": base[:, 1:3, ::2], "e": base[2, 3, 4],
                 "f": base[:, :, 2], "g": base[1:2].transpose(0, 1)}
        items = self.saved(state)
        for name, tensor in state.items():
            self.assert_same(items[WEIGHT, name, "weight"], tensor, "raw" if name in "abeg" else "coded")

    def test_tied_weights_are_an_alias(self):
        module = torch.nn.Module()
        module.embed, module.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False)
        module.head.weight = module.embed.weight
        items = self.saved(module.state_dict())
        self.assert_same(items[WEIGHT, "embed.weight", "weight"], module.embed.weight)
        self.assertEqual(items[WEIGHT, "head.weight", "weight"].alias, "embed.weight")

    def test_a_training_script_s_checkpoint(self):
        torch.manual_seed(2)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.25)
        module(torch.rand(5, 3)).sum().backward()
        optimizer.step()
        by_name = dict(zip(dict(module.named_parameters()), optimizer.state_dict()["state"].values()))
        groups = optimizer.state_dict()["param_groups"]
        for state in ({"state": by_name, "param_groups": groups},
                      {f"state.{n}.{k}": v for n, s in by_name.items() for k, v in s.items()} |
                      {"param_groups": groups}):
            items = self.saved({"model": module.state_dict(), "optimizer": state, "epoch": 3, "best": 0.5,
                                "note": "x", "rng": torch.get_rng_state(), "done": True, "none": None, "bytes": b"x"})
            for name, tensor in module.state_dict().items():
                self.assert_same(items[WEIGHT, name, "weight"], tensor)
            for name, moments in by_name.items():
                self.assert_same(items[OPTIMIZER, name, "exp_avg_sq"], moments["exp_avg_sq"])
                self.assertEqual(items[OPTIMIZER, name, "step"].value, "int 1")
            self.assertEqual(items[RUN, "run", "epoch"].value, "int 3")
            self.assertEqual(items[RUN, "run", "done"].value, "int 1")
            self.assertEqual(items[RUN, "run", "note"].value, "text x")
            self.assertEqual(float.fromhex(items[RUN, "run", "optimizer.param_groups.0.lr"].value.split()[1]), 0.25)
            self.assertEqual(float.fromhex(items[RUN, "run", "optimizer.param_groups.0.betas.1"].value.split()[1]),
                             0.999)
            self.assert_same(items[RUN, "run", "rng"], torch.get_rng_state())

    def test_nested_dicts_parameters_and_other_protocols(self):
        weight = torch.nn.Parameter(torch.rand(3, 2))
        state = collections.OrderedDict(model={"layers": [{"w": weight}, {"w": weight[1]}]})
        for protocol in (2, 3, 4, 5):
            items = self.saved(state, pickle_protocol=protocol)
            self.assert_same(items[WEIGHT, "layers.0.w", "weight"], weight)
            self.assert_same(items[WEIGHT, "layers.1.w", "weight"], weight[1])

    # ---- refused
    def test_nothing_in_a_file_is_executed(self):
        canary = os.path.join(self.folder, "canary")

        class Evil:
            def __reduce__(self):
                return os.mkdir, (canary,)
        for protocol in (2, 4):
            torch.save({"a": Evil()}, self.path, pickle_protocol=protocol)
            self.assertIn(".mkdir', which is not allowed", self.refusal())
        self.assertFalse(os.path.exists(canary))

    def test_kinds_of_files_that_are_not_read(self):
        torch.save({"a": torch.rand(2)}, self.path, _use_new_zipfile_serialization=False)
        self.assertEqual(self.refusal(), "checkpoint.pt: is the format of torch.save before 1.6; load it and save it "
                         "again with a current PyTorch")
        torch.jit.script(torch.nn.Linear(2, 2)).save(self.path)
        self.assertEqual(self.refusal(), "checkpoint.pt: is a TorchScript archive, not a file of torch.save")
        torch.save({"a": torch.rand(2, dtype=torch.complex64)}, self.path)
        self.assertIn("names 'torch.ComplexFloatStorage', which is not allowed", self.refusal())
        torch.save({"a": torch.rand(1).expand(5)}, self.path)
        self.assertIn("a tensor reaches outside the 1 elements of 'data/0'", self.refusal())
        torch.save([torch.rand(2)], self.path)
        self.assertEqual(self.refusal(), "checkpoint.pt: data.pkl: holds no dict of tensors")
        torch.save({"a": {1, 2}}, self.path)
        self.assertIn("not allowed", self.refusal())
        torch.save({"a": 1 << 70}, self.path)
        self.assertIn("an integer of more than 64 bits", self.refusal())
        with open(self.path, "wb") as file:
            pickle.dump({"a": "x" * 100}, file)
        self.assertIn("is the format of torch.save before 1.6", self.refusal())
        os.remove(self.path)
        self.assertIn("is not in the folder", self.refusal())

    def test_a_file_packed_again_is_read_unless_compressed(self):
        tensor = torch.rand(4, 3)
        torch.save({"a": tensor}, self.path)
        with zipfile.ZipFile(self.path) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile(self.path, "w", method) as archive:
                for name in reversed(records):
                    archive.writestr(name, records[name])
            if method == zipfile.ZIP_STORED:
                self.assert_same(self.describe()[WEIGHT, "a", "weight"], tensor)
            else:
                self.assertIn("is compressed; only stored records can be read", self.refusal())

    def test_a_cut_file_never_reads(self):
        torch.save({"a": torch.rand(4, 3)}, self.path)
        with open(self.path, "rb") as file:
            good = file.read()
        for size in list(range(0, len(good), 37)) + [len(good) - 1]:
            with open(self.path, "wb") as file:
                file.write(good[:size])
            self.refusal()
        with open(self.path, "wb") as file:
            file.write(good + b"x")
        self.assertIn("it was cut, or something was added", self.refusal())


if __name__ == "__main__":
    unittest.main()

"""Runs of the binary that keep their snapshots as folders of torch.distributed.checkpoint."""
import os
import sys
import unittest

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runs"))
import tool  # noqa: E402


class DcpFormat(tool.RunTest):
    settings = {"checkpoint.plugin": "dcp", "sharding.plugin": "full_shard", "lr_scheduler.total_steps": 8}

    def test_two_ranks_resume_exactly_and_pytorch_has_their_weights(self):
        whole = self.train("whole", nproc=2)
        other = self.train("other", nproc=2, checkpoint__plugin="sharded")
        self.train("halves", nproc=2, training__steps=4)
        resumed = self.train("halves", nproc=2, checkpoint__resume="auto")
        self.assertEqual(resumed.losses, {s: whole.losses[s] for s in resumed.losses})
        wanted = tool.read_snapshot(tool.snapshot_path(other.folder, 8))
        for run in (whole, resumed):
            template = {"model": {n: torch.zeros(t.shape) for n, t in wanted.items()}}
            dcp.load(template, checkpoint_id=tool.snapshot_path(run.folder, 8))
            for name, tensor in wanted.items():
                self.assertTrue(np.array_equal(template["model"][name].numpy(), tensor), name)


if __name__ == "__main__":
    unittest.main()

"""Ranks that somebody else starts: torchrun's agent store, Open MPI's, Slurm's and Kubernetes' variables."""
import os
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "parity"))
import shale_run

WORLD = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Launchers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        with open(cls.folder + "/text.txt", "wb") as f:
            f.write(bytes(i * i % 251 for i in range(20000)))
        shale_run.train(cls.folder + "/own", cls.settings("own"), WORLD)
        cls.losses = [row["loss"] for row in shale_run.metrics(cls.folder + "/own")]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def settings(cls, name):
        return {"job.dump_folder": f"{cls.folder}/{name}/run", "training.dataset_path": cls.folder + "/text.txt",
                "training.seq_len": 32, "training.local_batch_size": 2, "training.steps": 3,
                "comm.init_timeout_seconds": 60, "comm.train_timeout_seconds": 60}

    def config(self, name):
        os.makedirs(f"{self.folder}/{name}", exist_ok=True)
        path = f"{self.folder}/{name}/run.toml"
        shale_run.write_config(path, self.settings(name))
        return path

    def expect_same_run(self, name):
        self.assertEqual([row["loss"] for row in shale_run.metrics(f"{self.folder}/{name}")], self.losses)

    def join(self, name, variables):
        """One process per rank, each with its own variables; threads as the local launcher gives them."""
        command = [shale_run.SHALE, "train", self.config(name), "--training.threads=1"]
        ranks = [subprocess.Popen(command, env={**shale_run.environment(), **variables(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(WORLD)]
        for rank in ranks:
            out, error = rank.communicate(timeout=120)
            self.assertEqual(rank.returncode, 0, out + error)
        self.expect_same_run(name)

    def test_torchrun_with_its_agent_store(self):
        torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
        done = subprocess.run(
            [torchrun, f"--nproc-per-node={WORLD}", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
             "--no-python", shale_run.SHALE, "train", self.config("torchrun"), "--training.threads=1"],
            capture_output=True, text=True, timeout=180, env=shale_run.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.expect_same_run("torchrun")

    def test_torchrun_names_the_cause_of_a_failed_rank(self):
        torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
        done = subprocess.run(
            [torchrun, f"--nproc-per-node={WORLD}", "--no-python", shale_run.SHALE, "train", self.config("fails"),
             "--training.dataset_path=/nowhere/at/all"],
            capture_output=True, text=True, timeout=180, env=shale_run.environment())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere/at/all", done.stderr)

    def test_open_mpi(self):
        port = free_port()
        self.join("mpi", lambda rank: {
            "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(WORLD),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(WORLD),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

    def test_slurm(self):
        port = free_port()
        self.join("slurm", lambda rank: {
            "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(WORLD), "SLURM_STEP_NUM_TASKS": str(WORLD),
            "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": str(WORLD),
            "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": "4711", "MASTER_PORT": str(port)})

    def test_kubernetes_spawns_the_ranks_of_its_node(self):
        done = subprocess.run(
            [shale_run.SHALE, "train", self.config("kubernetes"), "--training.threads=1"], capture_output=True,
            text=True, timeout=120,
            env={**shale_run.environment(), "PET_NNODES": "1", "PET_NPROC_PER_NODE": str(WORLD), "PET_NODE_RANK": "0",
                 "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.expect_same_run("kubernetes")


if __name__ == "__main__":
    unittest.main(verbosity=2)

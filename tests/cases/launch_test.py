"""C2, C16: ports that are taken, ranks that do not come, names of interfaces that do not exist."""
import os
import socket
import sys
import unittest

import fixtures
from fixtures import DIST, LIM

START = 6  # seconds that ranks wait for each other here


class Launch(fixtures.Case):
    def taken_port(self):
        """A port with somebody who accepts and never says a word."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.addCleanup(listener.close)
        return listener.getsockname()[1]

    def free_port(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            return s.getsockname()[1]

    def rank(self, rank, port, limit=START, world=2, **env):
        """Starts one rank as another launcher would."""
        place = self.place()
        config = self.config(place, comm__init_timeout_seconds=limit)
        variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port), **env}
        return self.start(place, self.command(config, None), variables), place

    def both(self, first, second):
        return [self.finish(process, place, LIM) for process, place in (first, second)]

    def test_C02_a_port_that_is_taken_under_our_launcher(self):
        port = self.taken_port()
        env = {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
        self.refused(DIST, "127.0.0.1", port, "taken", env=env, comm__init_timeout_seconds=LIM)

    def test_C02_a_port_that_is_taken_under_another_launcher(self):
        # Both ranks say so on their own, long before the limit of start-up is over.
        port = self.taken_port()
        for outcome in self.both(self.rank(0, port, 10 * LIM), self.rank(1, port, 10 * LIM)):
            self.hold_refusal(outcome, DIST, "127.0.0.1", port)

    def test_C02_torchrun_starts_ranks_and_ends_them_together(self):
        place = self.place()
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python",
                    "--log-dir", place + "/log", "--master-addr", "127.0.0.1", "--master-port", str(self.free_port())]
        config = self.config(place)
        good = self.finish(self.start(place, torchrun + self.command(config, None)), place)
        self.assertEqual(good.code, 0, good.err)
        self.assertEqual(self.losses(good), self.losses(self.trained()))
        bad = self.config(place, training__dataset_path=place + "/none.bin")
        command = torchrun + self.command(bad, None) + ["--job.overwrite=true"]
        outcome = self.finish(self.start(place, command), place, LIM)
        self.assertNotEqual(outcome.code, 0)
        self.assertIn(f"E-input: {place}/none.bin: no such file", outcome.err)

    def test_C02_two_runs_at_once_choose_their_own_ports(self):
        alone = self.losses(self.trained())
        places = [self.place(), self.place()]
        started = [self.start(p, self.command(self.config(p))) for p in places]
        for process, place in zip(started, places):
            outcome = self.finish(process, place)
            self.assertEqual(outcome.code, 0, outcome.err)
            self.assertEqual(self.losses(outcome), alone)

    def test_C16_a_rank_that_never_starts(self):
        port = self.free_port()
        outcome = self.finish(*self.rank(0, port), LIM)
        self.hold_refusal(outcome, DIST, "1 of 2 ranks joined", f"within {START} s", "missing: rank 1")
        outcome = self.finish(*self.rank(1, port), LIM)
        self.hold_refusal(outcome, DIST, "rank 1 of 2", f"127.0.0.1:{port}", f"within {START} s", "missing: rank 0")

    def test_C16_an_interface_that_does_not_exist(self):
        self.refused(DIST, "GLOO_SOCKET_IFNAME", "nosuchdev0", env={"GLOO_SOCKET_IFNAME": "nosuchdev0"},
                     comm__init_timeout_seconds=10 * LIM)

    def test_C16_two_processes_with_one_rank(self):
        port = self.free_port()
        outcomes = self.both(self.rank(1, port), self.rank(1, port))
        duplicates = [o for o in outcomes if "duplicate rank 1" in o.err]
        self.assertTrue(duplicates, [o.err for o in outcomes])
        for outcome in outcomes:
            self.hold_refusal(outcome, DIST, "rank 1")

    def test_C16_half_of_the_variables_is_no_run_of_one_rank(self):
        for env, missing in (({"WORLD_SIZE": "2"}, "RANK"), ({"RANK": "1"}, "WORLD_SIZE")):
            self.refused(fixtures.CONFIG, missing, nproc=None, env=env)

    def test_C16_a_rank_outside_the_world(self):
        outcome = self.finish(*self.rank(2, self.free_port()), LIM)
        self.assertEqual(outcome.code, fixtures.CONFIG, outcome.err)
        self.assertIn("RANK=2", outcome.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)

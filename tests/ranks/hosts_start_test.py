"""Starting on several hosts: torchrun itself, addresses of IPv6, and hosts that do not see the same files."""
import os
import sys

import hosts_run
from hosts import Hosts
from hosts_run import Running
import tool


class Start(hosts_run.HostsTest):
    settings = hosts_run.HostsTest.settings | {"training.steps": 2}

    def test_torchrun(self):
        """Two agents, each of which starts the ranks of its host."""
        torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
        with Hosts(2) as on:
            config = self.config("torchrun", training__threads=1)
            running = [Running(host, [torchrun, "--nnodes=2", f"--node-rank={host.number}", "--nproc-per-node=2",
                                      f"--master-addr={on[0].address}", "--master-port=29500", "--no-python",
                                      tool.SHALE, "train", config], tool.environment(),
                               f"{self.root}/torchrun-{host.number}.txt") for host in on]
            run = self.end("torchrun", running)
        self.assertEqual(run.losses, self.train("here", 4).losses)

    def test_ipv6(self):
        with Hosts(2) as on:
            for host in on:
                host.ip(f"address add fd77::{host.number + 1}/64 dev eth0 nodad")
                host.ip("address flush dev eth0 scope global to 10.77.0.0/16")
                host.address = f"fd77::{host.number + 1}"
            self.assertEqual(self.train_on(on, 2, "six").losses, self.train("six-here", 4).losses)

    def refuse(self, name, code, pattern, on, **changes):
        run = self.end(name, self.start_on(on, 2, name, **changes), code)
        self.assertRegex(run.err, pattern)
        self.assertEqual(run.losses, {})

    def test_a_run_folder_that_is_not_shared(self):
        with Hosts(2) as on:
            os.makedirs(self.root + "/own")
            on[1].own_disk(self.root + "/own")
            self.refuse("own", 2, r"own\.toml:\d+:\d+: \[job\] dump_folder \S+/own of rank 2 is not that of rank 0; "
                                  r"snapshots need one folder that all hosts see", on, checkpoint__enable=True)
            self.assertEqual([f for f in os.listdir(self.root + "/own") if f.startswith(".")], [])
            # Without snapshots only rank 0 writes there.
            self.assertEqual(sorted(self.train_on(on, 2, "own").losses), [1, 2])

    def test_data_that_is_not_the_same(self):
        os.makedirs(self.root + "/data")
        tool.write_tokens(self.root + "/data/tokens.bin", tool.fixture_tokens())
        data = {"training__dataset_path": self.root + "/data/tokens.bin"}
        with Hosts(2) as on:
            on[1].own_disk(self.root + "/data")
            self.refuse("none", 3, r"E-input: \S+/data/tokens\.bin: .* \(rank [23] on host1\)\n", on, **data)
            on[1].start(["cp", self.root + "/held-out.bin", self.root + "/data/tokens.bin"], None).wait()
            self.refuse("other", 3, r"tokens\.bin: holds one number of sequences on rank 0 and another on rank 2; "
                                    r"give every host the same files", on, **data)


if __name__ == "__main__":
    hosts_run.main()

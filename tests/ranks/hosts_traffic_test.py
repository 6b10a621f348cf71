"""Every strategy on 2 hosts x 2 ranks and 4 hosts x 1: losses as on one host to the bit, and the bytes that cross
between hosts and that stay inside them, read from the interface counters, as the strategy's definition says.

A step's bytes are the difference of two runs of different length, so start-up and the end cancel, but for how often
ranks asked the store whether the others are there. What may come on top of the formula: per frame 66 bytes of Ethernet,
IPv4 and TCP headers, as many for an acknowledgement, Gloo's 48 bytes per message, and three all-reduces of one or two
numbers a step.
"""
import hosts_run
from hosts import Hosts
from hosts_run import by_nproc, by_rank, by_srun
from traffic import Job, step_bytes, unit_sizes

SHORT, LONG = 1, 6
HYBRID = ("hybrid_shard", "hybrid_shard_zero2", "mics")
BIG_FRAMES = 1.03   # up to 64 KiB a frame: 0.3 % measured, 2 % on a busy machine, which sends smaller ones
REAL_FRAMES = 1.08  # 1,514 bytes a frame, 1,448 of them payload: 4.6 %, and 2.3 % for an acknowledgement per two
SLACK = 40_000      # bytes a step: the numbers, and the questions to the store


class TrafficTest(hosts_run.HostsTest):
    here = {}

    def setUp(self):
        self.sizes = unit_sizes(self.model)

    def sent(self, on):
        return sum(host.sent() for host in on), sum(host.sent("lo") for host in on)

    def measure(self, on, per_host, name, how, **changes):
        """Bytes a step that cross and that stay, and the losses of the longer run."""
        at = [self.sent(on)]
        for steps in (SHORT, LONG):
            run = self.train_on(on, per_host, f"{name}-{steps}", how, training__steps=steps, **changes)
            at.append(self.sent(on))
        crossing, staying = [((c - b) - (b - a)) / (LONG - SHORT) for a, b, c in zip(*at)]
        return crossing, staying, run.losses

    def hold(self, measured, formula, bound, what):
        print(f"{what}: {measured:,.0f} bytes a step, formula {formula:,}", flush=True)
        self.assertGreaterEqual(measured, formula - SLACK, what)
        self.assertLessEqual(measured, formula * bound + SLACK, what)

    def expect(self, on, plugin, how=by_nproc, bound=BIG_FRAMES, **changes):
        """`plugin` as in traffic.py; `changes` are settings, and what step_bytes() has to know."""
        job = Job(len(on.hosts), 4 // len(on.hosts))
        formula = {k: changes.pop(k) for k in ("gather", "reduce", "reductions", "replica_sums") if k in changes}
        name = f"{plugin}-{len(on.hosts)}x{job.per_host}-{how.__name__}-{len(changes)}".replace(", ", "-")
        changes["sharding__plugin"] = plugin.split(",")[0]
        with self.subTest(name):
            crossing, staying, losses = self.measure(on, job.per_host, name, how, **changes)
            out, back = step_bytes(plugin, job, self.sizes, **formula)
            self.hold(crossing, out, bound, f"{name} between hosts")
            self.hold(staying, back, BIG_FRAMES, f"{name} inside hosts")
            self.assertEqual(losses, self.on_one_host(job, **changes))

    def on_one_host(self, job, **changes):
        """Losses of the same four ranks here; nothing says here where a hybrid's groups end, so they are given."""
        if changes["sharding__plugin"] in HYBRID:
            changes.setdefault("sharding__options__shard_size", job.per_host)
        key = "-".join(map(str, changes.values()))
        if key not in self.here:
            self.here[key] = self.train("here-" + key, 4, training__steps=LONG, **changes).losses
        return self.here[key]

    def test_two_hosts_of_two_ranks(self):
        with Hosts(2, mtu=65535) as on:
            self.expect(on, "no_shard")
            self.expect(on, "full_shard")
            self.expect(on, "full_shard", precision__plugin="bf16_mixed", gather=2, reduce=4)
            self.expect(on, "shard_grad_op", by_rank)
            self.expect(on, "zero1", by_srun)
            self.expect(on, "zero2")
            self.expect(on, "hybrid_shard", by_srun)
            self.expect(on, "hybrid_shard_zero2")
            # Of a step's gathers only the first of each layer crosses, or each piece crosses once.
            self.expect(on, "full_shard, reshard_size", sharding__options__reshard_size=2)
            self.expect(on, "mics", by_rank)
            self.expect(on, "mics, all ranks", by_srun, sharding__options__shard_size=4)
            # Two micro-steps: shards of gradients cross once a step, or as often as they are summed inside.
            twice = {"training__global_batch_size": 16, "reductions": 2}
            self.expect(on, "hybrid_shard_zero2", **twice)
            self.expect(on, "hybrid_shard_zero2", sharding__options__replica_at="micro_step", replica_sums=2, **twice)

    def test_four_hosts_of_one_rank(self):
        with Hosts(4, mtu=1500, real_frames=True) as on:
            self.expect(on, "no_shard", by_srun, REAL_FRAMES)
            self.expect(on, "full_shard", by_rank, REAL_FRAMES)
            self.expect(on, "zero1", by_nproc, REAL_FRAMES)
            self.expect(on, "hybrid_shard", by_nproc, REAL_FRAMES)


if __name__ == "__main__":
    hosts_run.main()

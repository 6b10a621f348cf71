"""A network that fails under a run on several hosts: at the start, and in the middle of it."""
import os
import unittest

import hosts_run
import tool
from hosts import Hosts
from hosts_run import by_nproc, by_rank

LIMIT, INIT_LIMIT = 5, 4  # seconds: [comm] train_timeout_seconds and init_timeout_seconds of these runs
GRACE = 30                # seconds more for a busy machine to end what the limit has stopped
DIST = 5                  # exit code


class Faults(hosts_run.HostsTest):
    settings = hosts_run.HostsTest.settings | {
        "training.steps": 100_000, "comm.train_timeout_seconds": LIMIT, "checkpoint.enable": True,
        "checkpoint.timeout_seconds": LIMIT,
        "checkpoint.interval": 2, "checkpoint.keep_latest_k": 3, "sharding.plugin": "full_shard"}

    def hold_failure(self, name, running):
        """All ranks on all hosts are gone within the limit; every host ends with a cause, its rank and its step."""
        result = self.end(name, running, DIST, LIMIT + GRACE)
        for r in running:
            last = r.text.strip().split("\n")[-1]
            self.assertRegex(last, r"E-dist: .*step \d+: rank \d: \w+ in group \"\w+\" "
                                   r"(did not finish in 5 s|lost its conn)")
        self.assertRegex(result.err, r"E-dist: .*rank \d: .* did not finish in 5 s.*; a rank is stuck or slower than")
        return result

    def hold_snapshot(self, name, result):
        """What was saved last is whole: on the mended network the run goes on as if nothing had been."""
        last = result.snapshots[-1]
        with Hosts(2) as on:
            again = self.train_on(on, 2, name, job__overwrite=False, checkpoint__resume="auto",
                                  training__steps=last + 2)
        undisturbed = self.train(name + "-here", 4, training__steps=last + 2)
        self.assertEqual(sorted(again.losses), list(range(1, last + 3)))
        self.assertEqual(again.losses, undisturbed.losses)

    def run_into(self, name, layout, fault, how=by_nproc, **changes):
        """A run that meets the fault after some steps."""
        count, per_host = layout
        with Hosts(count) as on:
            running = self.start_on(on, per_host, name, how, **changes)
            self.wait_for_step(name, 4)
            fault(on)
            return self.hold_failure(name, running)

    def test_a_link_goes_down(self):
        result = self.run_into("down", (2, 2), lambda on: on[1].link("down"))
        self.hold_snapshot("down", result)

    def test_the_link_of_the_first_host_goes_down(self):
        self.run_into("first", (4, 1), lambda on: on[0].link("down"), by_rank)

    def test_the_switch_drops_everything(self):
        self.run_into("switch", (2, 2), lambda on: on[1].leave_switch(), sharding__plugin="hybrid_shard")

    def test_one_direction_is_lost(self):
        self.run_into("half", (2, 2), lambda on: on[0].lose_all_sent_to(on[1]), sharding__plugin="zero1")

    def test_a_rank_of_another_host_is_killed(self):
        with Hosts(2) as on:
            running = self.start_on(on, 2, "killed")
            self.wait_for_step("killed", 4)
            victim = max(tool.children_of(tool.children_of(running[1].process.pid)[0]))
            tool.kill(victim, tool.signal.SIGKILL)
            self.end("killed", running[:1], DIST, LIMIT + GRACE)
            self.end("killed", running[1:], 128 + tool.signal.SIGKILL, LIMIT + GRACE)
        self.assertRegex(running[0].text, r"E-dist: .* lost its connection to .*nothing was heard from rank 3, so look")
        self.assertRegex(running[1].text, r"rank 3 was killed by signal 9 \(SIGKILL")

    def test_a_link_that_is_back_in_time(self):
        changes = {"training__steps": 40, "checkpoint__enable": False}
        with Hosts(2) as on:
            running = self.start_on(on, 2, "flap", comm__train_timeout_seconds=60, **changes)
            self.wait_for_step("flap", 4)
            on[1].link("down")
            tool.time.sleep(0.5)
            self.assertIsNone(running[0].process.poll(), "the run was over before its link went down")
            on[1].link("up")
            losses = self.end("flap", running).losses
        self.assertEqual(losses, self.train("flap-here", 4, **changes).losses)


class Rendezvous(hosts_run.HostsTest):
    settings = hosts_run.HostsTest.settings | {"comm.init_timeout_seconds": INIT_LIMIT}

    def start_and_fail(self, name, on, per_host, how=by_nproc):
        running = self.start_on(on, per_host, name, how)
        self.end(name, running, DIST, INIT_LIMIT + GRACE)
        return [r.text for r in running]

    def test_a_host_without_a_link(self):
        with Hosts(2) as on:
            on[1].link("down")
            first, second = self.start_and_fail("unplugged", on, 2)
        self.assertRegex(first, r"E-dist: start-up: 2 of 4 ranks joined at 10\.77\.0\.1:29500 within 4 s; "
                                r"missing: rank 2, 3; check")
        self.assertRegex(second, r"E-dist: start-up: rank [23] of 4 found nobody at 10\.77\.0\.1:29500 within 4 s; .*"
                                 r"check that it runs, MASTER_ADDR, MASTER_PORT and firewalls")

    def test_a_host_whose_packets_are_dropped(self):
        with Hosts(2) as on:
            on[1].leave_switch()
            first, second = self.start_and_fail("dropped", on, 2)
        self.assertIn("missing: rank 2, 3", first)
        self.assertIn("found nobody at 10.77.0.1:29500 within 4 s", second)

    def test_two_hosts_that_reach_the_first_only(self):
        with Hosts(3) as on:
            on[1].lose_all_sent_to(on[2])
            on[2].lose_all_sent_to(on[1])
            texts = self.start_and_fail("apart", on, 1, by_rank)
        self.assertRegex("".join(texts), r"rank [12]: group \"world\" of 3 ranks did not connect within 4 s")


if __name__ == "__main__":
    hosts_run.main()

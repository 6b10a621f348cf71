"""Runs that are asked to stop, or are killed. C22."""
import glob
import os
import random
import signal
import subprocess
import time
import unittest

import tool

LENGTH = 100000  # of the schedule; no run here comes near


class SignalTest(tool.RunTest):
    settings = {"training.steps": LENGTH, "lr_scheduler.total_steps": LENGTH, "training.shuffle": True,
                "checkpoint.interval": LENGTH}

    def saving(self, name):
        return glob.glob(f"{self.root}/{name}/checkpoints/.saving-*")

    def assert_gone(self, pids):
        self.wait_for(f"the end of processes {pids}", lambda: not any(map(is_alive, pids)))

    def assert_continues(self, runs, more=3):
        """Each stopped run goes on for some steps, bitwise as one straight run does."""
        ends = {name: max(run.snapshots) + more for name, run in runs.items()}
        straight = self.train("straight-" + "-".join(runs), training__steps=max(ends.values()))
        for name, end in ends.items():
            with self.subTest(name):
                resumed = self.train(name, training__steps=end, checkpoint__resume="auto")
                self.assertEqual(resumed.losses, {s: straight.losses[s] for s in range(1, end + 1)})


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class StopC22(SignalTest):
    def stop(self, name, send, code=143, when=None, **changes):
        run = self.start(name, **changes)
        self.wait_for_step(name, 2)
        ranks = tool.children_of(run.pid)
        self.assertEqual(len(ranks), 2)
        if when:
            self.wait_for("the moment of " + name, when)
        send(run.pid, ranks)
        result = self.finish(name, run, code)
        self.assert_gone(ranks)
        self.assertEqual(self.saving(name), [])
        last = max(result.losses)
        self.assertIn(f"stopped by signal {code - 128} after step {last}", result.out)
        self.assertEqual(result.snapshots[-1], last, "a complete snapshot of the last step")
        return result

    def test_every_way_to_be_stopped_saves_and_resumes(self):
        rows = lambda name: tool.read_text(f"{self.root}/{name}/metrics.jsonl")
        between = lambda name: lambda: rows(name).count('"loss":') == 2 * rows(name).count('"validation_loss"') + 2
        everybody = lambda launcher, ranks: [tool.kill(p) for p in (launcher, *ranks, launcher, *ranks)]
        cases = {
            "rank-0": (lambda launcher, ranks: tool.kill(ranks[0]), 143, None, {}),
            "rank-1": (lambda launcher, ranks: tool.kill(ranks[1]), 143, None, {}),
            "launcher": (lambda launcher, ranks: tool.kill(launcher), 143, None, {}),
            "interrupt": (lambda launcher, ranks: tool.kill(launcher, signal.SIGINT), 130, None, {}),
            # timeout(1) and batch systems signal the whole group, and each rank gets it from the launcher once more.
            "everybody": (everybody, 143, None, {}),
            "saving": (lambda launcher, ranks: tool.kill(launcher), 143, lambda: self.saving("saving"),
                       {"checkpoint__interval": 1, "checkpoint__keep_latest_k": 2}),
            "validating": (lambda launcher, ranks: tool.kill(ranks[1]), 143, between("validating"),
                           {"validation__enable": True, "validation__dataset_path": self.root + "/held-out.bin",
                            "validation__freq": 2, "validation__steps": 300}),
        }
        runs = {}
        for name, (send, code, when, changes) in cases.items():
            with self.subTest(name):
                runs[name] = self.stop(name, send, code, when, **changes)
        self.assert_continues(runs)

    def test_a_second_interrupt_ends_at_once(self):
        run = self.start("impatient", validation__enable=True, validation__freq=2, validation__steps=1000000,
                         validation__dataset_path=self.root + "/held-out.bin")
        self.wait_for_step("impatient", 2)
        ranks = tool.children_of(run.pid)
        tool.kill(run.pid, signal.SIGINT)
        time.sleep(0.3)  # it stays in the validation that nobody would wait for
        self.assertTrue(run.poll() is None and all(map(is_alive, ranks)))
        tool.kill(run.pid, signal.SIGINT)
        result = self.finish("impatient", run, 130)
        self.assertIn("without saving", result.err)
        self.assert_gone(ranks)
        self.assertEqual(result.snapshots, [])

    def test_at_any_moment_of_the_start(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        for trial in range(6):
            with self.subTest(seed=seed, trial=trial):
                name = f"start-{trial}"
                run = self.start(name)
                time.sleep(rng.uniform(0, 0.5))
                ranks = tool.children_of(run.pid)
                tool.kill(run.pid)
                out, err = run.communicate(timeout=tool.LIMIT)
                # Before the launcher takes signals itself, it ends as any program does.
                self.assertIn(run.returncode, (143, -signal.SIGTERM), out + err)
                self.assertNotIn("E-", err)
                self.assert_gone(ranks)
                result = tool.Result(f"{self.root}/{name}", subprocess.CompletedProcess([], 0, out, err))
                self.assertEqual(result.snapshots, sorted({max(result.losses)} if result.losses else {}))

    def test_without_snapshots_it_says_that_nothing_was_saved(self):
        run = self.start("unsaved", checkpoint__enable=False)
        self.wait_for_step("unsaved", 2)
        tool.kill(run.pid)
        result = self.finish("unsaved", run, 143)
        self.assertIn("nothing was saved", result.out)
        self.assertEqual(result.snapshots, [])

    def test_one_process_without_a_launcher(self):
        run = subprocess.Popen([tool.SHALE, "train", self.config("alone")], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, env=tool.environment(), cwd=self.root)
        self.wait_for_step("alone", 2)
        tool.kill(run.pid), tool.kill(run.pid)
        result = self.finish("alone", run, 143)
        self.assertEqual(result.snapshots, [max(result.losses)])

    def test_a_hangup_is_nothing_under_nohup(self):
        old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            run = self.start("nohup")
        finally:
            signal.signal(signal.SIGHUP, old)
        self.wait_for_step("nohup", 2)
        tool.kill(run.pid, signal.SIGHUP)
        self.wait_for_step("nohup", len(tool.read_metrics(self.root + "/nohup")) + 5)
        tool.kill(run.pid)
        self.finish("nohup", run, 143)


class Killed(SignalTest):
    settings = SignalTest.settings | {"checkpoint.interval": 1, "checkpoint.keep_latest_k": 3}

    def kill_hard(self, run, victim, ranks):
        tool.kill(victim, signal.SIGKILL)
        _, err = run.communicate(timeout=tool.LIMIT)
        self.assert_gone(ranks)
        self.assertEqual(run.returncode, -signal.SIGKILL if victim == run.pid else 128 + signal.SIGKILL, err)
        if victim != run.pid:
            self.assertEqual(err.count("was killed by signal 9"), 1, err)

    def test_no_process_outlives_the_launcher_and_the_last_snapshot_resumes(self):
        run = self.start("orphans")
        self.wait_for_step("orphans", 3)
        self.kill_hard(run, run.pid, tool.children_of(run.pid))
        self.assertEqual(run.returncode, -signal.SIGKILL)
        self.assertEqual(tool.processes_with(self.root), [])
        state = tool.Result(self.root + "/orphans", subprocess.CompletedProcess([], 0, "", ""))
        self.assert_continues({"orphans": state})

    def test_killed_while_saving_many_times(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        rng, name = random.Random(seed), "many"
        for trial in range(15):
            with self.subTest(seed=seed, trial=trial):
                before = max(tool.snapshots(f"{self.root}/{name}"), default=0)
                run = self.start(name, checkpoint__resume="auto")
                self.wait_for("the first save", lambda: max(tool.snapshots(f"{self.root}/{name}"), default=0) > before)
                ranks = tool.children_of(run.pid)
                self.wait_for("a save", lambda: self.saving(name))
                time.sleep(rng.uniform(0, 0.03))
                self.kill_hard(run, rng.choice([run.pid, *ranks]), ranks)
                newest = max(tool.snapshots(f"{self.root}/{name}"))
                self.assertGreater(newest, before)
                # Whatever has the name of a snapshot is one, not only the newest.
                for step in tool.snapshots(f"{self.root}/{name}"):
                    tensors = tool.read_snapshot(tool.snapshot_path(f"{self.root}/{name}", step))
                    self.assertFalse(any((t != t).any() for t in tensors.values()))
                done = self.shale("checkpoint", "inspect", tool.snapshot_path(f"{self.root}/{name}", newest))
                self.assertEqual(done.returncode, 0, done.stderr)
        state = tool.Result(f"{self.root}/{name}", subprocess.CompletedProcess([], 0, "", ""))
        self.assert_continues({name: state})
        self.assertEqual([e for e in os.listdir(f"{self.root}/{name}/checkpoints") if e.startswith(".")], [],
                         "what killed saves left is cleaned up")


if __name__ == "__main__":
    unittest.main(verbosity=2)

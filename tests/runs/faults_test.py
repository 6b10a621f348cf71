"""One rank fails in every way there is, in every place there is: all end, the cause is told, the snapshot stays."""
import concurrent.futures
import os
import random
import signal
import socket
import subprocess
import time
import unittest

import tool

PLUGINS = os.path.join(os.path.dirname(tool.SHALE), "tests", "faulty_plugins")
WAIT = 3   # seconds: comm.train_timeout_seconds where a rank is waited for
STEPS = 4
AT_ONCE = 2


class FaultTest(tool.RunTest):
    settings = {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS, "checkpoint.interval": 1,
                "training.local_batch_size": 1}

    def end(self, name, nproc, changes):
        """A run that must end by itself within the limits of its settings, all its processes with it."""
        done = self.shale("train", self.config(name, **changes), "--nproc", nproc)
        self.assertEqual(tool.processes_with(f"{self.root}/{name}.toml"), [], name)
        return tool.Result(f"{self.root}/{name}", done)

    def all_of(self, cases):
        """cases: {name: check()}, some side by side; each failure is told with its name."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            futures = {name: pool.submit(check) for name, check in cases.items()}
            for name, future in futures.items():
                with self.subTest(name):
                    future.result()

    def expect(self, run, code, last, snapshots):
        text = f"{run.folder}: exit {run.code}\n{run.err}"
        self.assertEqual(run.code, code, text)
        self.assertRegex(run.err.splitlines()[-1], last, text)
        self.assertEqual(run.snapshots, snapshots, text)

    def expect_goes_on(self, name, nproc, snapshot):
        """The snapshot that was left, taken by a run without a fault, which then equals one that had none at all."""
        rest = self.train(name + "-on", nproc, checkpoint__resume=tool.snapshot_path(f"{self.root}/{name}", snapshot))
        whole = self.train(name + "-whole", nproc)
        self.assertEqual(rest.losses, {s: l for s, l in whole.losses.items() if s > snapshot})


def faulty(kind, action, where, rank, file="faulty.so", **more):
    options = {"action": action, "where": where, "rank": rank, **more}
    return {f"{kind}__plugin": f"{PLUGINS}/{file}", **{f"{kind}__options__{k}": v for k, v in options.items()}}


# How a rank can fail by itself: exit code and what is told of it. {where}: the plugin's function.
ACTIONS = {
    "kill": (137, r"^rank {rank} was killed by signal 9 \(SIGKILL; out of memory\?\){step}$"),
    "abort": (134, r"^rank {rank} was killed by signal 6 \(SIGABRT\){step}$"),
    "error": (70, r"^\[rank \d\] E-bug: .*\[{kind}\] \w+ .*: {call}: {where}: was told to fail"),
    "throw": (70, r"^\[rank \d\] E-bug: .*\[{kind}\] \w+ .*: {call}: was told to throw"),
}
WAITED = {
    "stop": (5, r"E-dist: .* did not finish in 3 s.*; rank {rank} was stopped by signal 19 \(SIGSTOP\){step}$"),
    "hang": (5, r"E-dist: .* did not finish in 3 s"),
}


class Plugins(FaultTest):
    def fault(self, kind, action, where, rank, nproc=2):
        name = f"{kind}-{action}-{where}-{rank}"
        step, call = (2, {"half": "write"}.get(where, where)) if kind == "checkpoint" else (0, where)
        at = {"step": step} if step else {}
        limits = {"comm__train_timeout_seconds": WAIT, "comm__init_timeout_seconds": 30,
                  "checkpoint__timeout_seconds": WAIT} if action in WAITED else {}
        run = self.end(name, nproc, {**faulty(kind, action, where, rank, **at), **limits})
        code, last = (ACTIONS | WAITED)[action]
        last = last.format(rank=rank, step=f" in step {step}" if step else "", kind=kind, call=call, where=where)
        self.expect(run, code, last, [1] if step else [])
        if action in ("error", "throw"):
            self.assertEqual(run.err.count("E-"), 1, run.err)
            # Whoever tells it, the one line names the rank and, in a step, the step.
            self.assertRegex(run.err.splitlines()[-1], rf"\brank {rank}\b")
            if step:
                self.assertIn(f"E-bug: step {step}: ", run.err)

    def test_while_they_are_loaded_and_asked_for_a_plan(self):
        self.all_of({f"{action} {where} {rank}": lambda a=action, w=where, r=rank: self.fault("sharding", a, w, r)
                     for action in (*ACTIONS, *WAITED) for where in ("create", "plan") for rank in (0, 1)})

    def test_while_they_save(self):
        cases = [(a, w, r) for a in (*ACTIONS, *WAITED) for w, r in
                 (("write", 0), ("write", 1), ("half", 1), ("finish", 0))]
        self.all_of({f"{a} {w} {r}": lambda a=a, w=w, r=r: self.fault("checkpoint", a, w, r) for a, w, r in cases})
        for name in ("checkpoint-kill-half-1", "checkpoint-error-finish-0", "checkpoint-stop-write-0"):
            self.expect_goes_on(name, 2, 1)

    def test_an_exception_that_crosses_the_border(self):
        run = self.end("raw", 2, faulty("sharding", "raw_throw", "plan", 1))
        self.expect(run, 2, r"^\[rank 1\] E-config: .*plan threw a C\+\+ exception .*: a bug of the plugin", [])


class Hooks(FaultTest):
    """A plugin's own gather (its first), reduction (in backward), step_end (before the optimizer) and outer step (after
    it). By `replicate` gradients are summed over whole copies."""
    STEPS = {"gather": 1, "reduce": 2, "replicate": 2, "step_end": 2, "begin": 2, "apply": 2}

    def run_with(self, name, action, where, rank, nproc=2, **more):
        return self.end(name, nproc, {**faulty("sharding", action, where, rank, "faulty_hooks.so", **more),
                                      "comm__train_timeout_seconds": WAIT, "comm__init_timeout_seconds": 30})

    def fault(self, action, where, rank):
        step = self.STEPS[where]
        run = self.run_with(f"hook-{action}-{where}-{rank}", action, where, rank, step=step)
        code, last = (ACTIONS | WAITED)[action]
        last = last.format(rank=rank, step=f" in step {step}", kind="sharding", call=f".*step {step}", where=where)
        self.expect(run, code, last, list(range(1, step)))
        if action in ("error", "throw"):
            self.assertRegex(run.err.splitlines()[-1], rf"^\[rank {rank}\] E-bug: step {step}: ")
            self.assertEqual(run.err.count("E-"), 1, run.err)

    def test_in_every_hook(self):
        self.all_of({f"{a} {w}": lambda a=a, w=w, r=k % 2: self.fault(a, w, r)
                     for k, a in enumerate((*ACTIONS, *WAITED)) for w in self.STEPS})
        self.expect_goes_on("hook-kill-reduce-0", 2, 1)
        self.expect_goes_on("hook-error-begin-0", 2, 1)

    def test_an_exception_that_crosses_the_border(self):
        run = self.run_with("raw-hook", "raw_throw", "reduce", 1, step=2)
        self.expect(run, 70, r"^\[rank 1\] E-bug: step 2: .* threw a C\+\+ exception .*: a bug of the plugin", [1])

    def test_without_a_fault_they_are_full_shard(self):
        run = self.run_with("healthy", "none", "gather", 0)
        self.expect(run, 0, ".", [1, 2, 3, 4])
        self.assert_near(run.losses, self.train("plain", 2).losses, 1e-6, "own hooks and the core's")

    def test_a_rank_that_leaves_out_a_collective(self):
        for where in ("gather", "reduce"):
            with self.subTest(where):
                run = self.run_with("skip-" + where, "skip", where, 1, step=2)
                self.expect(run, 5, "E-dist: step 2: .*rank [01]", [1])


class ByHand(FaultTest):
    """Ranks that nobody watches, as other launchers start them: they notice each other's end alone."""

    def join(self, name, ranks, world=3, **changes):
        """Starts these ranks of the world: {rank: process}."""
        path = self.config(name, comm__init_timeout_seconds=6, **changes)
        port, started = free_port(), {}
        for rank in ranks:
            own = tool.environment(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                                   LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            run = subprocess.Popen([tool.SHALE, "train", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=own, cwd=self.root)
            self.addCleanup(run.stderr.close)
            self.addCleanup(lambda run=run: run.poll() is None and (run.kill(), run.wait()))
            started[rank] = run
        return started

    def expect_end(self, ranks, told):
        """All end alike, and one at least says this: where rank 0 ends first, the others may see no more than that."""
        texts = []
        for run in ranks:
            _, err = run.communicate(timeout=tool.LIMIT)
            self.assertEqual(run.returncode, 5, err)
            self.assertRegex(err.splitlines()[-1], "^shale: E-dist: ")
            texts.append(err.splitlines()[-1])
        self.assertRegex("\n".join(texts), told)

    def fail_at_start(self, rng, number, trial):
        ranks = self.join(f"start-{trial}", range(3), training__steps=100000, comm__train_timeout_seconds=WAIT)
        victim = ranks.pop(rng.randrange(3))
        time.sleep(rng.uniform(0, 0.6))
        os.kill(victim.pid, number)
        self.expect_end(ranks.values(), "E-dist")

    def test_a_rank_that_never_comes(self):
        for missing, told in ((2, "start-up: 2 of 3 ranks joined .* within 6 s; missing: rank 2;"),
                              (0, "found nobody at .* within 6 s; missing: rank 0, which serves the store there")):
            with self.subTest(missing=missing):
                ranks = self.join(f"absent-{missing}", {0, 1, 2} - {missing})
                self.expect_end(ranks.values(), told)

    def test_killed_or_stopped_while_they_meet(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        rng = random.Random(seed)
        for trial in range(10):
            with self.subTest(seed=seed, trial=trial):
                self.fail_at_start(rng, signal.SIGKILL if trial % 2 else signal.SIGSTOP, trial)

    def test_killed_between_steps(self):
        for victim in range(3):
            with self.subTest(victim=victim):
                name = f"between-{victim}"
                ranks = self.join(name, range(3), training__steps=100000, comm__train_timeout_seconds=60,
                                  checkpoint__keep_latest_k=1)
                self.wait_for_step(name, 2)
                ranks.pop(victim).kill()
                self.expect_end(ranks.values(), r"E-dist: step \d+: .*rank \d")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    unittest.main(verbosity=2)

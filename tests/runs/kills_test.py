"""Runs whose ranks or launcher are killed, stopped or asked to end at random moments; none may hang or lose a snapshot.

KILLS_SEED, KILLS_TRIALS and KILLS_ONLY (a trial's number) repeat a run of this test, as its output says."""
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest

import tool

SEED = int(os.environ.get("KILLS_SEED", random.SystemRandom().randrange(1 << 32)))
TRIALS = int(os.environ.get("KILLS_TRIALS", 210))
ONLY = [int(k) for k in os.environ.get("KILLS_ONLY", "").split()] or range(TRIALS)
AT_ONCE = 2
LENGTH = 100000  # steps; no run comes near, so that what is killed is always still at work
GRACE = 5        # seconds: what the launcher gives the other ranks to end, then to die
SLACK = 60       # seconds a busy machine may add; a hang lasts for ever
STRATEGIES = {"no_shard": 1, "full_shard": 1, "shard_grad_op": 1, "zero1": 1, "zero2": 1, "hybrid_shard": 2,
              "hybrid_shard_zero2": 2, "mics": 2}  # the world is a multiple of this
EVENTS = {"kill": 75, "kill launcher": 10, "terminate": 8, "stop": 7}  # and how often
MOMENTS = {"start": 40, "step": 35, "saving": 25}


def chosen(rng, weights):
    return rng.choices(list(weights), list(weights.values()))[0]


def ranks_of(launcher):
    """The process of each rank: children are listed as they were made."""
    try:
        return list(map(int, tool.read_text(f"/proc/{launcher}/task/{launcher}/children").split()))
    except OSError:
        return []


class Trial:
    def __init__(self, number):
        rng = random.Random(f"{SEED} {number}")
        self.name, self.number = f"trial-{number}", number
        self.strategy = rng.choice(list(STRATEGIES))
        self.world = rng.choice([w for w in (2, 3, 4) if w % STRATEGIES[self.strategy] == 0])
        self.event, self.moment = chosen(rng, EVENTS), chosen(rng, MOMENTS)
        self.victim, self.step = rng.randrange(self.world), rng.randint(1, 4)
        self.later = rng.random()  # of the start, or of some hundredths of a second
        self.limit = 3 if self.event == "stop" else 60

    def __str__(self):
        return (f"trial {self.number}: {self.strategy} on {self.world} ranks, {self.event} rank {self.victim}, "
                f"{self.moment}, step {self.step}, {self.later:.3f}")

    def settings(self, **more):
        shards = {"sharding__options__shard_size": 2} if STRATEGIES[self.strategy] == 2 else {}
        return {"sharding__plugin": self.strategy, "training__local_batch_size": 1, **shards, **more}


class Kills(tool.RunTest):
    settings = {"training.steps": LENGTH, "lr_scheduler.total_steps": LENGTH, "training.shuffle": True,
                "checkpoint.interval": 1, "checkpoint.keep_latest_k": 2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.straight, cls.lock = {}, threading.Lock()

    def wait(self, run, condition):
        end = time.monotonic() + SLACK
        while not condition():
            assert run.poll() is None, "it ended before anything was done to it: " + run.communicate()[1]
            assert time.monotonic() < end, "its moment did not come"
            time.sleep(0.002)

    def to_the_moment(self, trial, run):
        folder = f"{self.root}/{trial.name}"
        steps = lambda: sum("loss" in row for row in rows(folder))
        self.wait(run, lambda: len(ranks_of(run.pid)) == trial.world)
        if trial.moment == "start":
            return time.sleep(trial.later * self.start_time)
        self.wait(run, lambda: steps() >= trial.step)
        if trial.moment == "saving":
            self.wait(run, lambda: any(n.startswith(".saving") for n in names(folder + "/checkpoints")))
        time.sleep(trial.later * 0.03)

    def do(self, trial, run):
        """What the trial is about, until nothing of it is left. Returns the exit code and standard error."""
        self.to_the_moment(trial, run)
        ranks = ranks_of(run.pid)
        if trial.event == "kill launcher":
            run.kill()
        else:
            number = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}[trial.event]
            os.kill(ranks[trial.victim], number)
        limit = (2 * trial.limit if trial.event == "stop" else 0) + GRACE + SLACK
        end = time.monotonic() + limit
        _, err = run.communicate(timeout=limit)
        while tool.processes_with(f"{self.root}/{trial.name}.toml"):
            assert time.monotonic() < end, f"ranks outlive their run: {states(ranks)}\n{err}"
            time.sleep(0.01)
        return run.returncode, err

    def check_told(self, trial, code, err):
        expected = {"kill": 137, "kill launcher": -signal.SIGKILL, "terminate": 143, "stop": 5}[trial.event]
        assert code == expected, f"exit code {code}, not {expected}\n{err}"
        last = (err.splitlines() or [""])[-1]
        if trial.event == "kill":
            assert f"rank {trial.victim} was killed by signal 9" in last and err.count("was killed") == 1, err
            assert trial.moment == "start" or " in step " in last, err
        if trial.event == "stop":
            assert f"rank {trial.victim} was stopped by signal 19" in last and "E-dist" in last, err
        assert "E-bug" not in err, err

    def check_snapshots(self, trial):
        """Whatever is named like a snapshot is whole. Returns the newest one's step, 0 for none."""
        folder = f"{self.root}/{trial.name}"
        steps = tool.snapshots(folder)
        for step in steps:
            path = tool.snapshot_path(folder, step)
            manifest = json.loads(tool.read_text(path + "/manifest.json"))
            for file in manifest["files"]:
                assert os.path.getsize(f"{path}/{file['name']}") == file["bytes"], f"{path}: {file['name']} is cut"
            for name, tensor in tool.read_snapshot(path).items():
                assert not (tensor != tensor).any(), f"{path}: {name} has holes"
        done = sum("loss" in row for row in rows(folder))
        assert done <= (steps or [0])[-1] + 1, f"{done} steps are done, the snapshots are {steps}"
        return (steps or [0])[-1]

    def check_goes_on(self, trial, newest):
        end = newest + 2
        done = self.shale("train", self.config(trial.name, **trial.settings(training__steps=end,
                          checkpoint__resume="auto")), "--nproc", trial.world)
        assert done.returncode == 0, done.stderr
        losses = [row["loss"] for row in rows(f"{self.root}/{trial.name}") if "loss" in row]
        with self.lock:
            straight = self.straight.get((trial.strategy, trial.world), [])
            if len(straight) < end:
                name = f"straight-{trial.strategy}-{trial.world}-{end}"
                path = self.config(name, **trial.settings(training__steps=end + 10, checkpoint__enable=False))
                other = self.shale("train", path, "--nproc", trial.world)
                assert other.returncode == 0, other.stderr
                straight = [row["loss"] for row in rows(f"{self.root}/{name}") if "loss" in row]
                self.straight[trial.strategy, trial.world] = straight
        assert losses == straight[:end], f"resumed after step {newest}: {losses}, undisturbed: {straight[:end]}"

    def attempt(self, number):
        """None, or what went wrong."""
        trial = Trial(number)
        path = self.config(trial.name, **trial.settings(comm__train_timeout_seconds=trial.limit,
                                                        comm__init_timeout_seconds=2 * trial.limit,
                                                        checkpoint__timeout_seconds=trial.limit))
        run = subprocess.Popen([tool.SHALE, "train", path, "--nproc", str(trial.world)], text=True, cwd=self.root,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=tool.environment())
        try:
            code, err = self.do(trial, run)
            self.check_told(trial, code, err)
            newest = self.check_snapshots(trial)
            if number % 5 == 0 and newest:
                done = self.shale("checkpoint", "inspect", tool.snapshot_path(f"{self.root}/{trial.name}", newest))
                assert done.returncode == 0, done.stderr
            if number % 10 == 0:
                self.check_goes_on(trial, newest)
        except subprocess.TimeoutExpired:
            return f"{trial}: it hangs: {states([run.pid, *ranks_of(run.pid)])}"
        except AssertionError as wrong:
            return f"{trial}: {wrong}"
        finally:
            run.kill()  # its ranks die with it
            run.wait()
            run.stderr.close()
        return None

    def test_at_random_moments(self):
        print(f"KILLS_SEED={SEED}, {len(ONLY)} trials", flush=True)
        begin = time.monotonic()
        run = self.start("calibration", **Trial(0).settings())
        self.wait_for_step("calibration", 1)
        self.__class__.start_time = time.monotonic() - begin  # a little more than the ranks take to their first step
        run.kill()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            wrong = [w for w in pool.map(self.attempt, ONLY) if w]
        self.assertEqual(wrong, [], f"KILLS_SEED={SEED}\n" + "\n".join(wrong))


def rows(folder):
    """Whole lines of metrics.jsonl so far."""
    try:
        lines = tool.read_text(folder + "/metrics.jsonl").split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def names(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def states(pids):
    """For the message about a hang."""
    out = []
    for pid in pids:
        try:
            state = tool.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
            out.append(f"{pid} {state} in {tool.read_text(f'/proc/{pid}/wchan')}")
        except OSError:
            out.append(f"{pid} gone")
    return "; ".join(out)


if __name__ == "__main__":
    unittest.main(verbosity=2)

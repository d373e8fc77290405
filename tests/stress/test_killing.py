"""Runs and commands killed with SIGKILL at random moments end in the records of those that were left alone.

A few by default; ``make stress`` sets EVODROP_STRESS and does 40 of each. The number of a test is the seed of its
moments.

A run is a small network that learns scikit-learn's digits, in a process of its own that saves a checkpoint after every
iteration or every few. It is killed up to three times, each time anywhere in the time that the whole run takes, so also
while it writes a record or a checkpoint, and then left to finish.

A command is a short ``evodrop compare`` of six runs, two at a time. It is killed with its workers; alone, so that they
have to notice; or in one worker, which the command has to survive. Then the same command is given again.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from evodrop.lab.data import load
from evodrop.lab.methods import METHODS
from evodrop.lab.run import Run
from evodrop.lab.store import keep_records, read_timings
from evodrop.lab.training import training_for

LONG = "EVODROP_STRESS" in os.environ
PAUSES = (0.0, 0.02)  # seconds from one checkpoint to the next
MOST_KILLS = 3
WAYS = ("with its workers", "alone", "in one worker")  # in which a command is killed
CONTEXT = multiprocessing.get_context("forkserver")  # its children begin with these imported, and nothing else
IMPORTED = ["evodrop.lab.training.network", "sklearn.datasets", "torch._dynamo"]  # the last by SGD's first step


def identical(whole, killed):
    """Whether a run has the records of the other, and nothing else is left in its folder."""
    assert (killed / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()
    assert sorted(path.name for path in killed.iterdir()) == ["records.jsonl", "timings.jsonl"]


# A run


def live(run, folder, pause):
    training = training_for(run, load("digits"))
    for _ in keep_records(training, folder, every=pause):
        pass


def start(*arguments):
    process = CONTEXT.Process(target=live, args=arguments)
    process.start()
    return process


def finish(*arguments):
    """Run to the end; the seconds that it took."""
    begun = time.perf_counter()
    process = start(*arguments)
    process.join()
    assert process.exitcode == 0
    return time.perf_counter() - begun


def killed_after(seconds, *arguments):
    """Let a run live for so long; False if it came to its end before."""
    process = start(*arguments)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("number", range(40 if LONG else 4))
def test_a_run_killed_at_random_moments_ends_in_the_same_records(tmp_path, number):
    CONTEXT.set_forkserver_preload(IMPORTED)
    rng = random.Random(number)
    method, pause = list(METHODS)[number % len(METHODS)], PAUSES[number // len(METHODS) % len(PAUSES)]
    fields = {"dataset": "digits", "network": "digits", "lr": 0.02, "epochs": 4, "eval_every": 5}
    run = Run(method=method, seed=number, **fields)
    seconds = finish(run, tmp_path / "whole", pause)
    kills, wanted = 0, rng.randint(1, MOST_KILLS)
    while kills < wanted:
        if killed_after(rng.uniform(0, seconds), run, tmp_path / "killed", pause):
            kills += 1
        elif kills == 0:  # it came to its end too early
            shutil.rmtree(tmp_path / "killed")
        else:
            break
    finish(run, tmp_path / "killed", pause)
    identical(tmp_path / "whole", tmp_path / "killed")
    begun = [line["iteration"] for line in read_timings(tmp_path / "killed") if line.get("event") == "start"]
    assert begun == sorted(begun)


# A command


def compare(out):
    command = [sys.executable, "-m", "evodrop", "compare", "--methods", "standard,evolutional,batchnorm"]
    options = ["--seeds", "2", "--epochs", "60", "--out", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command + options, cwd=out.parent, start_new_session=True, **quiet)
    while process.poll() is None and not any(out.glob("*/records.jsonl")):  # nothing can be lost before
        time.sleep(0.01)
    return process


def kill(process, out, way):
    """Kill a command, or a worker of it; False if it has come to its end, or has no worker at work."""
    if way != "in one worker":
        (os.kill if way == "alone" else os.killpg)(process.pid, signal.SIGKILL)
        return process.wait() == -signal.SIGKILL
    holders = [lock.read_text().split() for lock in out.glob("*/lock")]
    workers = [int(words[0]) for words in holders if words]
    if workers:
        os.kill(workers[0], signal.SIGKILL)
    assert process.wait() == 0
    return bool(workers)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A comparison that was left alone, and the seconds from its first run to its end."""
    out = tmp_path_factory.mktemp("alone") / "whole"
    process = compare(out)
    begun = time.perf_counter()
    assert process.wait() == 0
    return out, time.perf_counter() - begun


@pytest.mark.parametrize("number", range(40 if LONG else 1))
def test_a_command_killed_at_a_random_moment_can_be_given_again(tmp_path, whole, number):
    (left_alone, seconds), rng, out = whole, random.Random(number), tmp_path / "killed"
    while True:
        process = compare(out)
        try:
            process.wait(rng.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            if kill(process, out, WAYS[number % len(WAYS)]):
                break
        shutil.rmtree(out)
    assert compare(out).wait() == 0
    runs = [path.name for path in left_alone.iterdir() if path.is_dir()]
    assert len(runs) == 6
    for name in runs:
        identical(left_alone / name, out / name)

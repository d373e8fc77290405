"""Kill runs with SIGKILL at random moments, start them again, and compare their records with those of runs left alone.

    python benchmarks/killing.py [--times 20] [--seed 0] [--compare]

Each time a small network learns scikit-learn's digits by one of the methods, in a process of its own that saves a
checkpoint after every iteration or every few. The process is killed up to three times, each time anywhere in the time
that the whole run takes, so also while it writes a record or a checkpoint, and then left to finish. Its file of records
has to be the same to the last byte, and nothing else may be left in the folder.

With ``--compare`` it is the command that is killed, a short ``evodrop compare`` of six runs, two at a time: in turn
with its workers; alone, so that they have to notice; and one worker alone, which the command has to survive. Then the
same command is given again. The moment is anywhere from the beginning of the first run to the end of the command, since
nothing can be lost before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from evodrop.experiments.data import Images
from evodrop.experiments.methods import METHODS, build_with
from evodrop.experiments.networks.batchnorm import find_sizes
from evodrop.experiments.records import read_records, read_timings
from evodrop.experiments.records.runs import Run
from evodrop.experiments.training import train
from evodrop.experiments.training.pixels import Pixels, prepare

PAUSES = (0.0, 0.02)  # seconds from one checkpoint to the next
MOST_KILLS = 3
WAYS = ("with its workers", "alone", "in one worker")  # in which a comparison is killed
CONTEXT = multiprocessing.get_context("forkserver")  # its children begin with these imported, and nothing else
IMPORTED = ["evodrop.experiments.training", "sklearn.datasets", "torch._dynamo"]  # the last by torch's first SGD step


def digits() -> Pixels:
    images, labels = load_digits(return_X_y=True)
    x, y = images.reshape(-1, 1, 8, 8).astype(np.uint8), labels.astype(np.int64)
    return prepare(Images("digits", x[:1400], y[:1400], x[1400:], y[1400:], 10), scale=1 / 16)


def build(run: Run) -> nn.Module:
    torch.manual_seed(run.seed)  # making a layer draws nothing, so all methods get the same weights
    return find_sizes(build_with(small, run.method, run.rate, run.match), (1, 8, 8))


def small(dropout: Callable[[], nn.Module] | None) -> nn.Sequential:
    make = dropout or nn.Identity
    head = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), make(), nn.Flatten()]
    return nn.Sequential(*head, nn.Linear(512, 32), nn.ReLU(), make(), nn.Linear(32, 10))


def live(run: Run, folder: Path, pause: float) -> None:
    for _ in train(run, build(run), digits(), folder, checkpoint_seconds=pause):
        pass


def start(run: Run, folder: Path, pause: float) -> multiprocessing.process.BaseProcess:
    process = CONTEXT.Process(target=live, args=(run, folder, pause))
    process.start()
    return process


def finish(run: Run, folder: Path, pause: float) -> float:
    """Run to the end; the seconds that it took."""
    begun = time.perf_counter()
    process = start(run, folder, pause)
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"{run.id} ended with code {process.exitcode}")
    return time.perf_counter() - begun


def kill_at_random(run: Run, folder: Path, pause: float, seconds: float, rng: random.Random) -> list[str]:
    """Kill a run a few times, at least once; where it was each time."""
    places: list[str] = []
    for _ in range(rng.randint(1, MOST_KILLS)):
        while not kill_after(run, folder, pause, rng.uniform(0, seconds)):
            if places:  # it has come to its end, but was killed on the way
                return places
            shutil.rmtree(folder)
        places.append(whereabouts(folder))
    return places


def kill_after(run: Run, folder: Path, pause: float, seconds: float) -> bool:
    """Let a run live for so long; False if it came to its end before."""
    process = start(run, folder, pause)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def whereabouts(folder: Path) -> str:
    if not (folder / "records.jsonl").exists():
        return "before its header"
    return f"after {len(read_records(folder)[1])} records"


def judge(whole: Path, folder: Path) -> str:
    if (whole / "records.jsonl").read_bytes() != (folder / "records.jsonl").read_bytes():
        return "OTHER RECORDS"
    left = sorted(path.name for path in folder.iterdir())
    return "identical" if left == ["records.jsonl", "timings.jsonl"] else f"LEFT {left}"


def attempt(number: int, folder: Path, rng: random.Random) -> bool:
    """One run left alone, one killed; True if they have the same records."""
    method, pause = list(METHODS)[number % len(METHODS)], PAUSES[number // len(METHODS) % len(PAUSES)]
    fields = {"dataset": "digits", "network": "small", "lr": 0.02, "epochs": 4, "eval_every": 5}
    run = Run(method=method, seed=number, **fields)
    seconds = finish(run, folder / "whole", pause)
    places = kill_at_random(run, folder / "killed", pause, seconds, rng)
    finish(run, folder / "killed", pause)
    begun = [line["iteration"] for line in read_timings(folder / "killed") if line.get("event") == "start"]
    verdict = judge(folder / "whole", folder / "killed")
    print(f"{number + 1:3} {method:13} killed {', '.join(places)}; begun at iterations {begun}: {verdict}", flush=True)
    return verdict == "identical"


def compare(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "evodrop", "compare", "--methods", "standard,evolutional,batchnorm"]
    options = ["--seeds", "2", "--epochs", "60", "--out", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command + options, cwd=out.parent, start_new_session=True, **quiet)


def wait_for_runs(process: subprocess.Popen[bytes], out: Path) -> None:
    """Until the first run has begun, or the process has ended."""
    while process.poll() is None and not any(out.glob("*/records.jsonl")):
        time.sleep(0.01)


def finish_comparison(out: Path) -> float:
    """Compare to the end; the seconds that it took since the first run began."""
    process = compare(out)
    wait_for_runs(process, out)
    begun = time.perf_counter()
    if (code := process.wait()) != 0:
        raise SystemExit(f"the comparison in {out} ended with code {code}")
    return time.perf_counter() - begun


def kill_comparison(out: Path, seconds: float, way: str) -> bool:
    """Let a comparison live for so long; False if it came to its end before, or had no worker to kill."""
    process = compare(out)
    wait_for_runs(process, out)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        if way == "in one worker":
            return kill_worker(process, out)
        (os.kill if way == "alone" else os.killpg)(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def kill_worker(process: subprocess.Popen[bytes], out: Path) -> bool:
    """Kill a worker of a comparison, if there is one at work, and let the comparison come to its end."""
    holders = [lock.read_text().split() for lock in out.glob("*/lock")]
    workers = [int(words[0]) for words in holders if words]
    if workers:
        os.kill(workers[0], signal.SIGKILL)
    if (code := process.wait()) != 0:
        raise SystemExit(f"the comparison in {out} lost a worker and ended with code {code}")
    return bool(workers)


def attempt_comparison(number: int, folder: Path, seconds: float, rng: random.Random) -> bool:
    """Kill a comparison and give its command again; True if its runs have the records of the one left alone."""
    out, way = folder / str(number), WAYS[number % len(WAYS)]
    while not kill_comparison(out, rng.uniform(0, seconds), way):
        shutil.rmtree(out)
    begun = [len(read_records(path.parent)[1]) for path in sorted(out.glob("*/records.jsonl"))]
    finish_comparison(out)
    runs = sorted(path.name for path in (folder / "whole").iterdir() if path.is_dir())
    verdicts = {judge(folder / "whole" / name, out / name) for name in runs}
    print(f"{number + 1:3} killed {way}, {len(runs)} runs had {begun} records: {', '.join(verdicts)}", flush=True)
    return verdicts == {"identical"}


def kill_comparisons(times: int, folder: Path, rng: random.Random) -> int:
    seconds = finish_comparison(folder / "whole")
    return sum(attempt_comparison(number, folder, seconds, rng) for number in range(times))


def kill_runs(times: int, folder: Path, rng: random.Random) -> int:
    CONTEXT.set_forkserver_preload(IMPORTED)
    warm = Run(dataset="d", network="n", method="evolutional", seed=0, lr=0.1, epochs=1)
    finish(warm, folder / "warm", 1.0)
    return sum(attempt(number, folder / str(number), rng) for number in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="runs to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    parser.add_argument("--compare", action="store_true", help="kill the command `evodrop compare`, not single runs")
    given = parser.parse_args()
    if given.times < 1:
        parser.error(f"--times is {given.times}, but there is at least 1 run to kill")
    rng, kill = random.Random(given.seed), kill_comparisons if given.compare else kill_runs
    with tempfile.TemporaryDirectory() as folder:
        survived = kill(given.times, Path(folder), rng)
    print(f"{survived} of {given.times} killed runs ended in records identical to those of the run left alone")
    sys.exit(survived != given.times)


if __name__ == "__main__":
    main()

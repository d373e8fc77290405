"""Many runs side by side, each in its own folder: what was killed resumes, what is finished is not repeated.

Runs share nothing but their data, so records do not depend on how many are run at once, nor by which backend of joblib.
A data set reaches a worker by its name: each worker loads it once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from typing import Any, cast

from evodrop.lab.data import PAIR, VALIDATION
from evodrop.lab.methods import LINEAR
from evodrop.lab.run import FAILED, Record, Run, RunResult
from evodrop.lab.store import finished_records, keep_records, locked
from evodrop.lab.training import load_once, training_for, whole_paths

TRIES = 2  # of what was lost with a worker that the system killed
KILLED = "its process was killed; is there memory for so many --jobs?"
PULSE = 0.2  # seconds between two looks whether the parent of a worker is still there
ONE_AT_A_TIME = threading.Lock()  # torch has one generator per process: runs in threads take turns


def run_all(
    runs: Sequence[Run],
    out: Path,
    data: Path | None = None,
    *,
    jobs: int = 2,
    on_result: Callable[[RunResult], None] | None = None,
    is_locked: bool = False,
) -> list[RunResult]:
    """Do all runs; the result of each, in their order. One that fails is a result too, and the others go on.

    A run that is named twice is done once. Data that cannot be read are an error of all runs, and end them.

    A run is kept in ``out/<run.id>``, and one process at a time writes to ``out``; ``is_locked`` says that the caller
    holds its lock. Each of the ``jobs`` is a process with one thread. A ``joblib.parallel_config`` around the call may
    choose another backend; its workers have to see ``out`` and the data folder.
    """
    runs, results = list(dict.fromkeys(runs)), dict[Run, RunResult]()
    out.mkdir(parents=True, exist_ok=True)
    with nullcontext() if is_locked else locked(out):
        for result in _results(runs, out, data, jobs):
            results[result.run] = result
            if on_result is not None:
                on_result(result)
    return [results[run] for run in runs]


def records_of(run: Run, data: Any, folder: Path) -> Iterator[Record]:
    """All records of one run on its data, from its beginning or from where it was left, kept in a folder."""
    return keep_records(training_for(run, data), folder)


def _results(runs: Sequence[Run], out: Path, data: Any, jobs: int) -> Iterator[RunResult]:
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    rest = list[Run]()
    for run in runs:
        is_pair = run.dataset.removeprefix(VALIDATION).startswith(PAIR)  # only its contents show whether it is the same
        done = None if is_pair else finished_records(out / run.id, run)
        if done is None:
            rest.append(run)
        else:
            yield RunResult(run, done[-1]["status"], cast(Record, done[-1]))
    backend = get_active_backend()[0]
    if rest and not getattr(backend, "supports_return_generator", False):  # a fork of threads may wait for ever
        raise ValueError(
            f"joblib's backend is a {type(backend).__name__}, but runs need one that gives results as they come and "
            "does not fork; use loky (the default), threading or a cluster's"
        )
    for dataset in dict.fromkeys(run.dataset for run in rest):
        left, where = [run for run in rest if run.dataset == dataset], whole_paths(dataset, data)
        if left[0].network != LINEAR:
            import torch.distributed as dist

            if dist.is_available() and dist.is_initialized():
                jobs = 1  # all ranks do each run together
        for _ in range(TRIES):  # if the system kills a worker, the runs that are not done go to new ones
            tasks = [delayed(_execute)(run, out, where, os.getpid()) for run in left]
            try:
                for result in Parallel(n_jobs=jobs, return_as="generator_unordered")(tasks):
                    left.remove(result.run)
                    yield result
            except BrokenProcessPool:
                continue
            break
        yield from (RunResult(run, FAILED, error=KILLED) for run in left)


def _execute(run: Run, out: Path, data: tuple[str, Path], parent: int) -> RunResult:
    """One run, in a worker or here; what goes wrong with it is in the result."""
    _end_with(parent)
    start = time.perf_counter()
    with ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        loaded = load_once(*data)
        try:
            *_, record = records_of(run, loaded, out / run.id)
            result = RunResult(run, record["status"], record)
        except Exception as error:  # any: the other runs go on
            result = RunResult(run, FAILED, error=f"{type(error).__name__}: {error}".splitlines()[0])
    remarks = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return result._replace(remarks=remarks, seconds=time.perf_counter() - start)


@cache  # once per process
def _end_with(parent: int) -> None:
    """In a worker process: leave Ctrl-C to the parent, given by its process id, and end when it has ended."""
    if os.getpid() == parent:
        return
    if os.getppid() != parent:
        if current_process().name.startswith("LokyProcess"):  # a child that began when its parent had ended
            os._exit(1)
        return  # a cluster looks after its workers
    if threading.current_thread() is threading.main_thread():  # no other may say what a signal does
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PULSE)
        os._exit(1)  # a folder survives it at any moment

    threading.Thread(target=watch, daemon=True).start()

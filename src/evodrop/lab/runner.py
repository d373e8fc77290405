"""Many runs side by side, each in its own folder: what was killed resumes, what is finished is not repeated.

Runs share nothing but their data, so records do not depend on how many are run at once, nor by which backend of joblib.
A data set reaches a worker by its name: each worker loads it once. Workers report no progress: what :func:`watching`
shows is read from the ends of their records, which are on the disk anyway.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from evodrop.lab.data import PAIR, VALIDATION
from evodrop.lab.methods import LINEAR, plain_name
from evodrop.lab.run import FAILED, FINAL, FINISHED, Record, Run, RunResult
from evodrop.lab.store import RECORDS, finished_records, keep_records
from evodrop.lab.training import load_once, training_for, whole_paths

TRIES = 2  # of what was lost with a worker that the system killed
KILLED = "its process was killed; is there memory for so many --jobs?"
PULSE = 0.2  # seconds between two looks whether the parent of a worker is still there
ONE_AT_A_TIME = threading.Lock()  # torch has one generator per process: runs in threads take turns
TAIL = 1 << 16  # bytes: a line of records is shorter
LOOKS = 2  # per second
FRAME = 6  # lines of the screen that are no rows
BAR = 16  # columns


def run_all(runs: Sequence[Run], out: Path, data: Path | None = None, *, jobs: int = 2) -> Iterator[RunResult]:
    """Do all runs; the result of each, as they end. One that fails is a result too, and the others go on.

    A run that is named twice is done once. Data that cannot be read are an error of all runs, and end them.

    A run is kept in ``out/<run.id>``. Each of the ``jobs`` is a process with one thread. A ``joblib.parallel_config``
    around the call may choose another backend; its workers have to see ``out`` and the data folder.
    """
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    rest = list[Run]()
    for run in dict.fromkeys(runs):
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
            *_, record = keep_records(training_for(run, loaded), out / run.id)
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


@contextmanager
def watching(
    runs: Sequence[Run], out: Path, title: str, console: Console | None = None
) -> Iterator[Callable[[RunResult], None]]:
    """Show the progress of runs in ``out`` within a ``with`` block; gives the function to call with each result."""
    console = console or Console(stderr=True, highlight=False)  # standard output holds results alone
    runs, results = list(dict.fromkeys(runs)), dict[Run, RunResult]()
    trials = bool(runs) and all(run.dataset.startswith(VALIDATION) for run in runs)
    tested = "validation error" if trials else "test error"

    def take(result: RunResult) -> None:
        results[result.run] = result
        if console.is_terminal and not result.error and not result.remarks:  # its row says enough
            return
        count = f"[{len(results):{len(str(len(runs)))}}/{len(runs)}]"
        clean, test = _errors(result.record)
        words = result.error or f"training error {clean}, {tested} {test}"
        line = f"{count} {label(result.run)}: {result.status}, {words} ({result.seconds:.1f} s)"
        console.print("\n".join([line, *(f"    {remark}" for remark in result.remarks)]), markup=False, soft_wrap=True)

    if not console.is_terminal:
        yield take
        return
    progress = Progress(
        TextColumn("{task.description}", markup=False, table_column=Column("run", no_wrap=True)),
        BarColumn(BAR, table_column=Column("progress")),
        *(
            TextColumn(f"{{task.fields[{field}]}}", justify="right", table_column=Column(header, justify="right"))
            for field, header in {"clean": "training error", "test": tested, "state": "time left"}.items()
        ),
        console=console,
        speed_estimate_period=math.inf,  # the time left follows from all that was seen of a run
    )
    start: dict[Run, Any] = {run: _share(run, last_record(out / run.id)) for run in runs}
    rows = {run: progress.add_task(label(run), total=1.0, completed=start[run]) for run in runs}
    whole = progress.add_task("all runs", total=len(runs), completed=sum(start.values()))

    def look() -> Table:
        """The table as it is now. If the screen is small, runs on their way go before those done and to come."""
        ended, moving = dict(results), set[Run]()  # results come in another thread
        tasks = {task.id: task for task in progress.tasks}
        for run, row in rows.items():
            result = ended.get(run)
            record = (result and result.record) or last_record(out / run.id)
            progress.update(row, completed=1.0 if result else _share(run, record))
            if result:
                state = "done" if result.status == FINISHED else result.status
            elif tasks[row].completed > start[run]:
                moving.add(run)
                state = _clock(tasks[row].time_remaining)
            else:
                state = "waiting"
            clean, test = _errors(record)
            progress.update(row, clean=clean, test=test, state=state)
        progress.update(whole, completed=sum(tasks[row].completed for row in rows.values()))
        order = sorted(runs, key=lambda run: 0 if run in moving else 1 if run in ended else 2)
        shown = order[: max(console.height - FRAME, 1)]
        table = progress.make_tasks_table(tasks[rows[run]] for run in runs if run in shown)
        failed = sum(result.status == FAILED for result in ended.values())
        caption = f"{len(ended)} of {len(runs)} runs done" + (f", {failed} failed" if failed else "")
        if len(ended) < len(runs):  # if those to come are as fast as those so far
            caption += f"; {_clock(tasks[whole].time_remaining)} left"
        table.title, table.caption, table.show_header = Text(title), caption, True
        return table

    with Live(get_renderable=look, console=console, refresh_per_second=LOOKS):
        yield take


def label(run: Run) -> str:
    """A run in a few words."""
    network = "" if run.network in (LINEAR, run.dataset.removeprefix(VALIDATION)) else f"{run.network} "
    rate = "" if run.rate == 0.5 else f", rate {run.rate:g}"
    match = "" if run.match == "draws" else f", match {run.match}"
    return f"{network}{plain_name(run.method)}{rate}{match}, step {run.lr:g}, seed {run.seed}"


def last_record(folder: Path) -> dict[str, Any] | None:
    """The last whole record of a run; None if there is none that can be read."""
    try:
        with open(folder / RECORDS, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read().split(b"\n")[:-1]  # what follows the last newline is not whole
        record = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("epoch"), int | float) else None


def _share(run: Run, record: Mapping[str, Any] | None) -> float:
    """The part of a run that is done, from 0 to 1."""
    if record is None:
        return 0.0
    return 1.0 if record.get("status") in FINAL else min(1.0, float(record["epoch"]) / run.epochs)


def _errors(record: Mapping[str, Any] | None) -> list[str]:
    errors = ((record or {}).get(name) for name in ("clean_error", "test_error"))
    return [f"{100 * error:.2f}%" if isinstance(error, int | float) else "-" for error in errors]


def _clock(seconds: float | None) -> str:
    return "?" if seconds is None else str(timedelta(seconds=round(seconds)))

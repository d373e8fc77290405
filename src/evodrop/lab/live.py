"""The progress of runs: a live table with a row for each, or plain lines where there is no terminal.

Workers report nothing: the table reads the ends of their records, which are on the disk anyway.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from evodrop.lab.data import VALIDATION
from evodrop.lab.methods import LINEAR, plain_name
from evodrop.lab.run import FAILED, FINAL, FINISHED, Run, RunResult
from evodrop.lab.store import RECORDS

TAIL = 1 << 16  # bytes: a line of records is shorter
LOOKS = 2  # per second
FRAME = 6  # lines of the screen that are no rows
BAR = 16  # columns


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

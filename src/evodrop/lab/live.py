"""The progress of runs: a live table with a row for each, or plain lines where there is no terminal.

Workers report nothing: the table reads the ends of their records, which are on the disk anyway.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evodrop.lab.data import VALIDATION
from evodrop.lab.methods import LINEAR
from evodrop.lab.run import FAILED, FINAL, FINISHED, Run, RunResult
from evodrop.lab.store import RECORDS

__all__ = ["Progress", "label", "last_record", "watching"]

TAIL = 1 << 16  # bytes: a line of records is shorter
LOOKS = 2  # per second
FRAME = 7  # lines of the screen that are no rows
BAR = 16  # columns


@contextmanager
def watching(
    runs: Sequence[Run], out: Path, title: str, console: Console | None = None
) -> Iterator[Callable[[RunResult], None]]:
    """Show the progress of runs in ``out`` within a ``with`` block; gives the function to call with each result.

    Args:
        runs: the rows.
        out: where the runs are kept.
        title: above the table.
        console: standard error by default, so that standard output holds results alone.
    """
    console = console or Console(stderr=True, highlight=False)
    progress, is_table = Progress(runs, out, title), console.is_terminal

    def take(result: RunResult) -> None:
        note = progress.note(result)
        if not is_table or result.error or result.remarks:  # of the others, their rows say enough
            console.print(note, markup=False, soft_wrap=True)

    if not is_table:
        yield take
        return
    with Live(get_renderable=lambda: progress.table(console.height - FRAME), console=console, refresh_per_second=LOOKS):
        yield take


class Progress:
    """How far each run is, by the last line of its records, and what that means for the time left."""

    def __init__(self, runs: Sequence[Run], out: Path, title: str) -> None:
        self.runs, self.out, self.title = list(dict.fromkeys(runs)), out, title
        self.begun = time.monotonic()
        self.records = {run: last_record(out / run.id) or {} for run in self.runs}
        self.start = {run: self.share(run) for run in self.runs}
        self.moved: dict[Run, tuple[float, float]] = {}  # when a run was first seen to move, and its share then
        self.results: dict[Run, RunResult] = {}
        self.guard = threading.Lock()  # the table is made in a thread of its own
        trials = bool(self.runs) and all(run.dataset.startswith(VALIDATION) for run in self.runs)
        self.tested = "validation error" if trials else "test error"

    def share(self, run: Run) -> float:
        """The part of a run that is done, from 0 to 1."""
        record = self.records[run]
        return 1.0 if record.get("status") in FINAL else min(1.0, float(record.get("epoch", 0.0)) / run.epochs)

    def note(self, result: RunResult) -> str:
        """Take in a result; the lines that report it."""
        run = result.run
        with self.guard:
            self.results[run] = result
            self.records[run] = dict(result.record or self.records[run])
        count = f"[{len(self.results):{len(str(len(self.runs)))}}/{len(self.runs)}]"
        clean, test = self._errors(run)
        words = result.error or f"training error {clean}, {self.tested} {test}"
        line = f"{count} {label(run)}: {result.status}, {words} ({result.seconds:.1f} s)"
        return "\n".join([line, *(f"    {remark}" for remark in result.remarks)])

    def look(self) -> None:
        """Read the ends of the records of all runs that have no result yet."""
        for run in self.runs:
            record = None if run in self.results else last_record(self.out / run.id)
            with self.guard:
                if record is not None and run not in self.results:  # it may have ended while its records were read
                    self.records[run] = record
                if run not in self.results and self.share(run) > self.start[run]:
                    self.moved.setdefault(run, (time.monotonic(), self.share(run)))

    def table(self, rows: int) -> Table:
        """The table as it is now, with at most so many rows: runs on their way go before those done and to come."""
        self.look()
        share = {run: 1.0 if run in self.results else self.share(run) for run in self.runs}
        done, new = sum(share.values()), sum(share.values()) - sum(self.start.values())
        failed = sum(result.status == FAILED for result in list(self.results.values()))
        caption = f"{len(self.results)} of {len(self.runs)} runs done" + (f", {failed} failed" if failed else "")
        if len(self.results) < len(self.runs):  # if those to come are as fast as those so far
            caption += f"; {_clock(time.monotonic() - self.begun, len(self.runs) - done, new)} left"
        table = Table(title=Text(self.title), caption=caption)
        table.add_column("run", no_wrap=True)
        table.add_column("progress")
        for name in ("training error", self.tested, "time left"):
            table.add_column(name, justify="right")
        shown = sorted(self.runs, key=lambda run: 1 if run in self.results else 0 if run in self.moved else 2)
        for run in [run for run in self.runs if run in shown[: max(rows, 1)]]:
            bar = ProgressBar(total=1.0, completed=self.share(run), width=BAR)
            table.add_row(Text(label(run)), bar, *self._errors(run), self._state(run))
        return table

    def _state(self, run: Run) -> str:
        if run in self.results:
            return "done" if self.results[run].status == FINISHED else self.results[run].status
        if run not in self.moved:
            return "waiting"
        since, share = self.moved[run]
        return _clock(time.monotonic() - since, 1.0 - self.share(run), self.share(run) - share)

    def _errors(self, run: Run) -> list[str]:
        errors = (self.records[run].get(name) for name in ("clean_error", "test_error"))
        return [f"{100 * error:.2f}%" if isinstance(error, int | float) else "-" for error in errors]


def label(run: Run) -> str:
    """A run in a few words."""
    network = "" if run.network in (LINEAR, run.dataset.removeprefix(VALIDATION)) else f"{run.network} "
    rate = "" if run.rate == 0.5 else f", rate {run.rate:g}"
    match = "" if run.match == "draws" else f", match {run.match}"
    return f"{network}{run.method}{rate}{match}, step {run.lr:g}, seed {run.seed}"


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


def _clock(seconds: float, to_do: float, done: float) -> str:
    """The time that the rest takes if it goes as fast as what was done in some seconds."""
    if done <= 0:
        return "?"
    minutes, rest = divmod(round(seconds * to_do / done), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""What is going on: a live table with a row for each run, or plain lines where there is no terminal.

Workers tell nothing: the table reads the ends of their records, which are on the disk anyway.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evodrop.experiments.data import VALIDATION
from evodrop.experiments.methods import LINEAR
from evodrop.experiments.records.folder import RECORDS
from evodrop.experiments.records.record import FAILED, FINAL, FINISHED, Ending
from evodrop.experiments.records.runs import AnyRun

__all__ = ["Progress", "label", "last_line", "watching"]

TAIL = 1 << 16  # bytes: a line of records is shorter
LOOKS = 2  # a second
FRAME = 7  # lines of the screen that are no rows
BAR = 16  # columns


@contextmanager
def watching(
    runs: Sequence[AnyRun], out: Path, title: str, console: Console | None = None
) -> Iterator[Callable[[Ending], None]]:
    """Show how runs in ``out`` come along within a ``with`` block; gives the function to call with each ending.

    Args:
        runs: the rows.
        out: where the runs are kept.
        title: above the table.
        console: standard error by default, so that standard output holds results alone.
    """
    console = console or Console(stderr=True, highlight=False)
    progress = Progress(runs, out, title)
    if not console.is_terminal:
        yield lambda ending: console.print(progress.note(ending), markup=False, soft_wrap=True)
        return
    with Live(get_renderable=lambda: progress.table(console.height - FRAME), console=console, refresh_per_second=LOOKS):
        yield lambda ending: _tell(console, progress, ending)


def _tell(console: Console, progress: Progress, ending: Ending) -> None:
    """The row says how a run ended; what went wrong with it takes more room."""
    note = progress.note(ending)
    if ending.error or ending.remarks:
        console.print(note, markup=False, soft_wrap=True)


class Progress:
    """How far each run is, by the last line of its records, and what that means for the time left."""

    def __init__(self, runs: Sequence[AnyRun], out: Path, title: str) -> None:
        self.runs, self.out, self.title = list(dict.fromkeys(runs)), out, title
        self.begun = time.monotonic()
        self.lines = {run: last_line(out / run.id) or {} for run in self.runs}
        self.start = {run: self.share(run) for run in self.runs}
        self.moved: dict[AnyRun, tuple[float, float]] = {}  # when a run was first seen to move, and its share then
        self.endings: dict[AnyRun, Ending] = {}
        self.guard = threading.Lock()  # the table is made in a thread of its own

    def note(self, ending: Ending) -> str:
        """Take in an ending; the line that tells it."""
        with self.guard:
            self.endings[ending.run] = ending
            self.lines[ending.run] = dict(ending.record or self.lines[ending.run])
        width = len(str(len(self.runs)))
        told = ending.error or self._errors_in_words(ending.run)
        head = f"[{len(self.endings):{width}}/{len(self.runs)}] {label(ending.run)}: {ending.status}"
        return "\n".join([f"{head}, {told} ({ending.seconds:.1f} s)", *(f"    {line}" for line in ending.remarks)])

    def _errors_in_words(self, run: AnyRun) -> str:
        clean, other = (_percent(self.lines[run].get(name)) for name in ("clean_error", "test_error"))
        return f"training error {clean}, {_data_behind([run])} error {other}"

    def share(self, run: AnyRun) -> float:
        """The part of a run that is done, from 0 to 1."""
        if self.lines[run].get("status") in FINAL:
            return 1.0
        return min(1.0, float(self.lines[run].get("epoch", 0.0)) / run.epochs)

    def look(self) -> None:
        """Read the ends of the records of all runs that are not known to have ended."""
        for run in self.runs:
            if run not in self.endings:
                self._take_in(run, last_line(self.out / run.id))

    def _take_in(self, run: AnyRun, line: dict[str, Any] | None) -> None:
        with self.guard:
            if line is not None and run not in self.endings:  # it may have ended while its records were read
                self.lines[run] = line
            if self.share(run) > self.start[run]:
                self.moved.setdefault(run, (time.monotonic(), self.share(run)))

    def left(self) -> float | None:
        """Seconds until all is done, if the runs to come are as fast as those so far; None if nobody knows yet."""
        done = sum(1.0 if run in self.endings else self.share(run) for run in self.runs)
        new = done - sum(self.start.values())
        return (time.monotonic() - self.begun) * (len(self.runs) - done) / new if new > 0 else None

    def left_of(self, run: AnyRun) -> float | None:
        """Seconds until a run is done."""
        since, share = self.moved.get(run, (0.0, 1.0))
        gained = self.share(run) - share
        return (time.monotonic() - since) * (1.0 - self.share(run)) / gained if gained > 0 else None

    def table(self, rows: int) -> RenderableType:
        """The table as it is now, with at most so many rows: runs on their way go before those done and to come."""
        self.look()
        table = Table(title=Text(self.title), caption=self._caption())
        table.add_column("run", no_wrap=True)
        table.add_column("progress")
        for name in ("training error", f"{_data_behind(self.runs)} error", "time left"):
            table.add_column(name, justify="right")
        order = sorted(self.runs, key=self._rank)[: max(rows, 1)]
        for run in self.runs:
            if run in order:
                bar = ProgressBar(total=1.0, completed=self.share(run), width=BAR)
                errors = (_percent(self.lines[run].get(name)) for name in ("clean_error", "test_error"))
                table.add_row(Text(label(run)), bar, *errors, self._state(run))
        return table

    def _rank(self, run: AnyRun) -> int:
        return 1 if run in self.endings else 0 if run in self.moved else 2

    def _state(self, run: AnyRun) -> str:
        if run in self.endings:
            return "done" if self.endings[run].status == FINISHED else self.endings[run].status
        return _clock(self.left_of(run)) if run in self.moved else "waiting"

    def _caption(self) -> str:
        failed = sum(ending.status == FAILED for ending in list(self.endings.values()))
        words = f"{len(self.endings)} of {len(self.runs)} runs done"
        words += f", {failed} failed" * (failed > 0)
        return words if len(self.endings) == len(self.runs) else f"{words}; {_clock(self.left())} left"


def label(run: AnyRun) -> str:
    """A run in a few words."""
    network = "" if run.network in (LINEAR, run.dataset.removeprefix(VALIDATION)) else f"{run.network} "
    rate = "" if run.rate == 0.5 else f", rate {run.rate:g}"
    match = "" if run.match == "draws" else f", match {run.match}"
    return f"{network}{run.method}{rate}{match}, step {run.lr:g}, seed {run.seed}"


def last_line(folder: Path) -> dict[str, Any] | None:
    """The last whole record of a run; None if there is none that can be read."""
    try:
        with open(folder / RECORDS, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read().split(b"\n")[:-1]  # what follows the last newline is not whole
        record = json.loads(lines[-1]) if lines else None
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("epoch"), int | float) else None


def _data_behind(runs: Sequence[AnyRun]) -> str:
    """Which data the error in the records of runs is measured on, besides the training data."""
    return "validation" if runs and all(run.dataset.startswith(VALIDATION) for run in runs) else "test"


def _percent(error: Any) -> str:
    return f"{100 * error:.2f}%" if isinstance(error, int | float) else "-"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

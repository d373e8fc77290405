"""The numbers of a summary as the words of a table, for the terminal and for the report alike."""

from __future__ import annotations

from typing import NamedTuple

from evodrop.experiments.claims.intervals import Interval
from evodrop.experiments.claims.outcomes import Outcome
from evodrop.experiments.claims.summaries import Summary, Target
from evodrop.experiments.run import DIVERGED

__all__ = ["RANKED_WORDS", "Cells", "cells_of", "duration", "percent"]

NO_BREAK = "\N{NO-BREAK SPACE}"
UNKNOWN, BASELINE = "-", "baseline"
RANKED_WORDS = "The least test error comes first; where intervals overlap, the order may be chance."


class Cells(NamedTuple):
    """A row: one contender."""

    label: str
    step: str
    test_error: str
    best_test_error: str
    test_change: str
    training_error: str
    to_training: str
    to_test: str
    seconds: str
    runs: str


def cells_of(outcome: Outcome) -> list[Cells]:
    """The rows of an outcome's table: in the order of the contenders, or if these are many, by test error."""
    rows = outcome.ranking if outcome.is_ranked else outcome.summaries
    return [_cells(row, row.label == outcome.baseline) for row in rows]


def _cells(row: Summary, is_baseline: bool) -> Cells:
    counts = {DIVERGED: row.diverged, "unfinished": row.unfinished}
    seeds = f"{len(row.seeds)}{NO_BREAK}seed{'s' * (len(row.seeds) > 1)}"
    return Cells(
        label=row.label,
        step=f"{row.lr:g}",
        test_error=_error(row.test_error, row),
        best_test_error=_error(row.best_test_error, row),
        test_change=BASELINE if is_baseline else _change(row.test_change),
        training_error=_error(row.training_error, row),
        to_training=_target(row.to_training, is_baseline),
        to_test=_target(row.to_test, is_baseline),
        seconds=UNKNOWN if row.seconds is None else duration(row.seconds).replace(" ", NO_BREAK),
        runs=", ".join([seeds, *(f"{count} {state}" for state, count in counts.items() if count)]),
    )


def _error(error: Interval, row: Summary) -> str:
    if error.mean is None and row.diverged:
        return DIVERGED if row.diverged == len(row.seeds) else f"{row.diverged} of {len(row.seeds)} {DIVERGED}"
    if error.mean is None:
        return UNKNOWN
    half = error.half_width
    return f"{100 * error.mean:.2f}%" + ("" if half is None else f"{NO_BREAK}±{NO_BREAK}{100 * half:.2f}")


def percent(error: float | None) -> str:
    """An error, in percent."""
    return UNKNOWN if error is None else f"{100 * error:.2f}%"


def _change(change: Interval) -> str:
    if change.mean is None:
        return UNKNOWN
    if change.low is None or change.high is None:
        return f"{100 * change.mean:+.1f}%"
    bounds = f"({100 * change.low:+.1f} to {100 * change.high:+.1f})".replace(" ", NO_BREAK)
    return f"{100 * change.mean:+.1f}% {bounds}"


def _target(target: Target, is_baseline: bool) -> str:
    if target.asked == 0:
        return UNKNOWN
    if target.iterations.mean is None:
        return f"reached in {target.reached} of {target.asked} seeds"
    iterations = f"{target.iterations.mean:,.0f}"
    return iterations if is_baseline else f"{iterations}, {_change(target.change)}"


def duration(seconds: float) -> str:
    """A short time in the unit that suits it.

    Examples:
        >>> duration(0.00125)
        '1.25 ms'
    """
    scale, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * scale:.3g} {unit}"

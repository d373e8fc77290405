"""From curves to the numbers of a table: how good a contender is in the end, how soon, and at what price.

Four definitions carry all of them. *Smoothed*: the mean of the last records, a tenth of all and five at most, so that
no lucky record counts and a short run is not averaged away. *The target*: the least smoothed error that the baseline
reaches with the same seed. *Pace*: the error averaged over the run, which is small if it falls fast; it is known in
every run, while a target may never be reached. *Change*: relative to the baseline, seed by seed, since weights and
batches of a seed are the same for all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evodrop.experiments.claims.intervals import Interval, interval, relative_change
from evodrop.experiments.curves import Curve, Floats
from evodrop.experiments.figures.contenders import convergence
from evodrop.experiments.run import RUNNING

__all__ = [
    "Band",
    "Summary",
    "Target",
    "band_of",
    "final_error",
    "first_reached",
    "smooth",
    "summarise",
    "time_of_processor",
]

WIDEST = 5  # records of a window
SHARE = 10  # a window is at most one part in so many of a run
LATE = 5  # the late records are the last part of so many
TRAINING, TEST = "clean", "test"  # the curves that have targets: training error on clean data, test error


class Target(NamedTuple):
    """How soon a contender is as good as the baseline."""

    iterations: Interval  # until then
    asked: int  # seeds in which the baseline gives a target
    reached: int  # seeds in which the contender reaches it
    change: Interval  # of the iterations, relative to the baseline's


class Summary(NamedTuple):
    """One contender: a row of the table. Errors are fractions."""

    label: str
    lr: float
    seeds: tuple[int, ...]
    training_error: Interval  # on clean data, smoothed, at the end
    test_error: Interval  # smoothed, at the end
    best_test_error: Interval  # smoothed, the least on the way: it looks at the test data, so it flatters
    test_change: Interval  # of the test error, relative to the baseline's
    test_difference: Interval  # of the test error, less the baseline's
    training_pace: Interval  # change of the training error averaged over the run, relative to the baseline's
    test_pace: Interval  # the same of the test error
    to_training: Target  # the baseline's best
    to_test: Target  # the baseline's best
    to_late_training: Target  # the baseline's mean over its last fifth of records
    seconds: float | None  # per iteration, median over the seeds: see :func:`time_of_processor`
    diverged: int  # seeds that did
    unfinished: int  # seeds whose runs have not come to their end


def summarise(contenders: Mapping[str, Sequence[Curve]], baseline: str | None) -> list[Summary]:
    """A summary of each contender, in order.

    Args:
        contenders: for each label its curves, one a seed.
        baseline: the label that changes are relative to; None if there is none. Seeds that it lacks have no change.
    """
    references = {curve.seed: curve for curve in contenders.get(baseline, ())} if baseline is not None else {}
    clock = "cpu_seconds" if time_of_processor(contenders) else "seconds"
    return [_summary(label, curves, references, clock) for label, curves in contenders.items() if curves]


def time_of_processor(contenders: Mapping[str, Sequence[Curve]]) -> bool:
    """Whether all runs know the processor's time, which tells methods apart whatever else the machine does.

    If one does not, the clock on the wall is all that they can be compared by.
    """
    return all(curve.cpu_seconds is not None for curves in contenders.values() for curve in curves)


def _summary(label: str, curves: Sequence[Curve], references: Mapping[int, Curve], clock: str) -> Summary:
    pairs = [(curve, references[curve.seed]) for curve in curves if curve.seed in references]
    own, theirs = ([final_error(pair[side]) for pair in pairs] for side in (0, 1))
    seconds = [time for curve in curves if (time := getattr(curve, clock)) is not None]
    return Summary(
        label=label,
        lr=curves[0].lr,
        seeds=tuple(curve.seed for curve in curves),
        training_error=interval(final_error(curve, TRAINING) for curve in curves),
        test_error=interval(final_error(curve) for curve in curves),
        best_test_error=interval(_best(curve, TEST) for curve in curves),
        test_change=relative_change(own, theirs),
        test_difference=interval(None if a is None or b is None else a - b for a, b in zip(own, theirs, strict=True)),
        training_pace=_pace(pairs, TRAINING),
        test_pace=_pace(pairs, TEST),
        to_training=_target(pairs, TRAINING, _best),
        to_test=_target(pairs, TEST, _best),
        to_late_training=_target(pairs, TRAINING, _late),
        seconds=statistics.median(seconds) if seconds else None,
        diverged=sum(curve.diverged for curve in curves),
        unfinished=sum(curve.status == RUNNING for curve in curves),
    )


def smooth(values: Floats, window: int | None = None) -> Floats:
    """The mean of each value and those before it, ``window`` in all; of fewer at the beginning.

    By default the window is a tenth of the values, at least 1 and at most 5: the end of a short run is not mixed with
    its beginning.

    Examples:
        >>> smooth(np.array([4.0, 2.0, 0.0]), window=2)
        array([4., 3., 1.])
        >>> smooth(np.array([4.0, 2.0, 0.0]))
        array([4., 2., 0.])
    """
    window = max(1, min(WIDEST, len(values) // SHARE)) if window is None else window
    sums = np.convolve(values, np.ones(window))[: len(values)]
    return np.asarray(sums / np.minimum(np.arange(1, len(values) + 1), window), np.float64)


def final_error(curve: Curve, kind: str = TEST) -> float | None:
    """The smoothed error of the last record; None if the run diverged."""
    return None if curve.diverged else _known(smooth(getattr(curve, kind))[-1])


def _best(curve: Curve, kind: str) -> float | None:
    return None if curve.diverged else _known(np.min(smooth(getattr(curve, kind))))


def _late(curve: Curve, kind: str) -> float | None:
    """The mean of the last fifth of the records: softer than the best, which a run may pass by a hair or miss."""
    errors: Floats = getattr(curve, kind)
    return None if curve.diverged else _known(float(np.mean(errors[-max(1, len(errors) // LATE) :])))


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def first_reached(curve: Curve, target: float, kind: str) -> float | None:
    """The first iteration whose smoothed error is at most the target; None if there is none.

    A run that diverged later has reached what it has reached.
    """
    reached = smooth(getattr(curve, kind)) <= target  # nan is not
    return float(curve.iterations[np.argmax(reached)]) if reached.any() else None


def _pace(pairs: Sequence[tuple[Curve, Curve]], kind: str) -> Interval:
    """The change of the error averaged over the iterations that both runs of a pair have."""
    ends = [min(curve.iterations[-1] for curve in pair) for pair in pairs]
    own, theirs = (
        [
            None if pair[side].diverged else _known(convergence(pair[side], end, kind))
            for pair, end in zip(pairs, ends, strict=True)
        ]
        for side in (0, 1)
    )
    return relative_change(own, theirs)


def _target(pairs: Sequence[tuple[Curve, Curve]], kind: str, of: Callable[[Curve, str], float | None]) -> Target:
    targets = [of(reference, kind) for _, reference in pairs]
    own, theirs = (
        [
            None if target is None else first_reached(pair[side], target, kind)
            for pair, target in zip(pairs, targets, strict=True)
        ]
        for side in (0, 1)
    )
    asked, reached = (sum(value is not None for value in values) for values in (targets, own))
    return Target(interval(own), asked, reached, relative_change(own, theirs))


class Band(NamedTuple):
    """A contender's curve for a picture: mean, least and largest over its seeds, (n,) each."""

    iterations: Floats
    mean: Floats
    low: Floats
    high: Floats


def band_of(curves: Sequence[Curve], kind: str) -> Band | None:
    """The band of the smoothed errors over the iterations that all seeds have; None if they tell nothing of this kind.

    Runs that diverged are left out unless all did.
    """
    shown = [curve for curve in curves if not curve.diverged] or list(curves)
    iterations = shown[0].iterations
    for curve in shown[1:]:
        iterations = np.intersect1d(iterations, curve.iterations)
    values = np.array(
        [smooth(getattr(curve, kind))[np.isin(curve.iterations, iterations)] for curve in shown], np.float64
    )
    known = np.isfinite(values).all(axis=0)
    if not known.any():
        return None
    values = values[:, known]
    return Band(iterations[known], values.mean(0), values.min(0), values.max(0))

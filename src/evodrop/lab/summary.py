"""From curves to the numbers of a table: how good a variant is in the end, how soon, and at what price.

Four definitions carry all of them. *Smoothed*: the mean of the last records, a tenth of all and five at most, so that
no lucky record counts and a short run is not averaged away. *Pace*: the error averaged over the run, which is small if
it falls fast. *The target*: the smoothed error that the baseline has at its end with the same seed; a variant that
never reaches it is counted with the whole length of its run. *Change*: relative to the baseline, seed by seed, since
weights and batches of a seed are the same for all. Which runs count, and at which step size, is decided here too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from evodrop.lab.curves import Curve, Floats
from evodrop.lab.run import RUNNING

LEVEL = 0.95
Interval = tuple[float, float, float]  # the mean of some numbers, and the ends of its 95% interval; nan is unknown
NO_MEAN: Interval = (math.nan, math.nan, math.nan)
WIDEST = 5  # records of a window
SHARE = 10  # a window is at most one part in so many of a run
TRAINING, TEST = "clean", "test"  # the curves that have targets: training error on clean data, test error


def interval(values: Iterable[float]) -> Interval:
    """Mean and Student's t-interval of independent values. One value has no interval; if one is missing, none is known.

    A seed that diverged cannot be left out of a mean without making it better than it is.
    """
    numbers = np.array(list(values), np.float64)
    if not len(numbers) or not np.isfinite(numbers).all():
        return NO_MEAN
    mean, half = float(np.mean(numbers)), math.nan
    if len(numbers) > 1:
        from scipy.special import stdtrit  # the quantile of Student's t, without the weight of scipy.stats

        quantile = float(stdtrit(len(numbers) - 1, (1 + LEVEL) / 2))
        half = quantile * float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers))
    return mean, mean - half, mean + half


def relative_change(values: Sequence[float] | Floats, references: Sequence[float] | Floats) -> Interval:
    """mean(value) / mean(reference) - 1 and its interval over pairs; missing if a value is, or if all references are 0.

    With R the ratio of the means, (value - R reference) / mean(reference) has mean 0, and its spread is that of R to
    first order. A mean of ratios would be too large: where a reference happens to be small, its ratio is huge.
    """
    own, theirs = np.array([values, references], np.float64)
    if not len(own) or not np.isfinite([own, theirs]).all() or not theirs.mean() > 0:
        return NO_MEAN
    ratio = own.mean() / theirs.mean()
    return interval((own - ratio * theirs) / theirs.mean() + (ratio - 1.0))


class Summary(NamedTuple):
    """One variant: a row of the table. Errors are fractions."""

    label: str
    lr: float
    seeds: tuple[int, ...]
    pairs: int  # seeds that the baseline has too
    training_error: Interval  # on clean data, smoothed, at the end
    test_error: Interval  # smoothed, at the end
    test_change: Interval  # of the test error, relative to the baseline's
    test_difference: Interval  # of the test error, less the baseline's
    training_pace: Interval  # change of the training error averaged over the run, relative to the baseline's
    test_pace: Interval  # the same of the test error
    to_training: Interval  # change of the iterations to the target of the training error, relative to the baseline's
    to_test: Interval  # the same of the test error
    targets: dict[str, tuple[float, int, int]]  # of both: mean iterations, seeds that reach it, seeds with one
    seconds: float | None  # of the processor per iteration, median over the seeds
    diverged: int  # seeds that did
    unfinished: int  # seeds whose runs have not come to their end


def summarise(variants: Mapping[str, Sequence[Curve]], baseline: str | None) -> list[Summary]:
    """A summary of each variant, given as its label and its curves, one per seed.

    Changes are relative to the baseline, if there is one; seeds that it lacks have none.
    """
    references = {curve.seed: curve for curve in variants.get(baseline, ())} if baseline is not None else {}
    rows = []
    for label, curves in variants.items():
        pairs = [(curve, references[curve.seed]) for curve in curves if curve.seed in references]
        (to_training, training_target), (to_test, test_target) = _target(pairs, TRAINING), _target(pairs, TEST)
        own, theirs = (np.array([final_error(pair[side]) for pair in pairs]) for side in (0, 1))
        seconds = [curve.cpu_seconds for curve in curves if curve.cpu_seconds is not None]
        rows.append(
            Summary(
                label=label,
                lr=curves[0].lr,
                seeds=tuple(curve.seed for curve in curves),
                pairs=len(pairs),
                training_error=interval(final_error(curve, TRAINING) for curve in curves),
                test_error=interval(final_error(curve) for curve in curves),
                test_change=relative_change(own, theirs),
                test_difference=interval(own - theirs),
                training_pace=_pace(pairs, TRAINING),
                test_pace=_pace(pairs, TEST),
                to_training=to_training,
                to_test=to_test,
                targets={"to_training": training_target, "to_test": test_target},
                seconds=statistics.median(seconds) if seconds else None,
                diverged=sum(curve.diverged for curve in curves),
                unfinished=sum(curve.status == RUNNING for curve in curves),
            )
        )
    return rows


def smooth(values: Floats) -> Floats:
    """The mean of each value and those before it, a tenth of all values and at most 5; of fewer at the beginning.

    So the end of a short run is not mixed with its beginning.
    """
    window = max(1, min(WIDEST, len(values) // SHARE))
    sums = np.convolve(values, np.ones(window))[: len(values)]
    return np.asarray(sums / np.minimum(np.arange(1, len(values) + 1), window), np.float64)


def final_error(curve: Curve, kind: str = TEST) -> float:
    """The smoothed error of the last record; nan if the run diverged."""
    return math.nan if curve.diverged else float(smooth(getattr(curve, kind))[-1])


def _pace(pairs: Sequence[tuple[Curve, Curve]], kind: str) -> Interval:
    """The change of the error averaged over the iterations that both runs of a pair have."""
    ends = [min(curve.iterations[-1] for curve in pair) for pair in pairs]
    own, theirs = (
        [average_error(pair[side], end, kind) for pair, end in zip(pairs, ends, strict=True)] for side in (0, 1)
    )
    return relative_change(own, theirs)


def _target(pairs: Sequence[tuple[Curve, Curve]], kind: str) -> tuple[Interval, tuple[float, int, int]]:
    """A run that diverged after it reached the target has reached it; one that did not has no number."""
    own, theirs, reached, asked = list[float](), list[float](), 0, 0
    for curve, reference in pairs:
        target = final_error(reference, kind)
        there, first = (np.flatnonzero(smooth(getattr(run, kind)) <= target) for run in (curve, reference))
        is_unknown = math.isnan(target) or (curve.diverged and not len(there))
        own.append(math.nan if is_unknown else float(curve.iterations[there[0] if len(there) else -1]))
        theirs.append(float(reference.iterations[first[0]]) if len(first) else math.nan)
        reached += len(there) > 0
        asked += len(first) > 0
    return relative_change(own, theirs), (interval(own)[0], reached, asked)


def final_curves(own: Sequence[Curve]) -> list[Curve]:
    """The runs of a variant that its results are made of, one per seed: those at the step size that was chosen.

    The choice is :func:`choose_step` among the runs of the least seed; where these differ in length, among those of the
    length that most step sizes have. Results are those of the longest runs at that step.
    """
    step = choose_step(tuning_curves(own))
    chosen = [curve for curve in own if curve.lr == step]
    longest = max(curve.epochs for curve in chosen)
    by_seed: dict[int, Curve] = {}
    for curve in chosen:
        if curve.epochs == longest and (other := by_seed.setdefault(curve.seed, curve)) is not curve:
            raise ValueError(
                f"{other.folder} and {curve.folder} are runs of the same method, step size and seed; "
                "their other options differ, so report them apart"
            )
    return [by_seed[seed] for seed in sorted(by_seed)]


def tuning_curves(own: Sequence[Curve]) -> list[Curve]:
    """The runs of a variant that its step size is chosen from."""
    least = min(curve.seed for curve in own)
    first = [curve for curve in own if curve.seed == least]
    lengths = {curve.epochs: {other.lr for other in first if other.epochs == curve.epochs} for curve in first}
    epochs = max(lengths, key=lambda length: (len(lengths[length]), length))
    return [curve for curve in first if curve.epochs == epochs]


def choose_step(curves: Sequence[Curve]) -> float:
    """The step size of fastest convergence on the training data, among runs that differ in it alone.

    The paper tunes so (Sections 5.1 and 5.2) and leaves the measure open. Ours is the training error on clean data,
    averaged over the iterations that all runs have reached: it rewards a fast descent. Of equals, the larger step is
    taken. A run that diverged is the last choice; if all did, it is the smallest step.
    """
    sound = [curve for curve in curves if not curve.diverged]
    if not sound:
        return min(curve.lr for curve in curves)
    reached = min(curve.iterations[-1] for curve in sound)
    return min(sound, key=lambda curve: (average_error(curve, reached), -curve.lr)).lr


def average_error(curve: Curve, reached: float = math.inf, kind: str = "clean") -> float:
    """An error, that on clean training data or "test", averaged over the records up to an iteration.

    It is small if the error fell fast, and infinite if the run diverged or a record lacks it.
    """
    errors: Floats = getattr(curve, kind)[curve.iterations <= reached]
    return float(np.mean(errors)) if len(errors) and np.isfinite(errors).all() and not curve.diverged else math.inf


def band_of(curves: Sequence[Curve], kind: str) -> tuple[Floats, Floats, Floats, Floats] | None:
    """A variant's curve for a picture: iterations that all seeds have, mean, least and largest of the smoothed errors.

    Runs that diverged are left out unless all did. None if no record has this kind of error.
    """
    shown = [curve for curve in curves if not curve.diverged] or list(curves)
    iterations = reduce(np.intersect1d, [curve.iterations for curve in shown])
    smoothed = [smooth(getattr(curve, kind))[np.isin(curve.iterations, iterations)] for curve in shown]
    values = np.array(smoothed, np.float64)
    known = np.isfinite(values).all(axis=0)
    if not known.any():
        return None
    values = values[:, known]
    return iterations[known], values.mean(0), values.min(0), values.max(0)

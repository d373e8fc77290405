"""A few numbers from several seeds: their mean, and what the mean is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

__all__ = ["Interval", "interval", "relative_changes"]

LEVEL = 0.95


class Interval(NamedTuple):
    """The mean of n numbers and its 95% interval. No number, no mean; one number, no interval."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        return None if self.high is None or self.low is None else (self.high - self.low) / 2


def interval(values: Iterable[float | None]) -> Interval:
    """Mean and Student's t-interval of independent values; if one of them is missing, so are both.

    What a seed could not tell (it diverged, it never came there) cannot be left out of a mean without making it better
    than it is.

    Examples:
        >>> interval([1.0, 2.0, 3.0])  # doctest: +ELLIPSIS
        Interval(mean=2.0, low=-0.484..., high=4.484..., n=3)
        >>> interval([0.25]), interval([0.25, None])
        (Interval(mean=0.25, low=None, high=None, n=1), Interval(mean=None, low=None, high=None, n=2))
    """
    numbers = list(values)
    known = [value for value in numbers if value is not None and math.isfinite(value)]
    if not known or len(known) < len(numbers):
        return Interval(None, None, None, len(numbers))
    mean = float(np.mean(known))
    if len(known) == 1:
        return Interval(mean, None, None, 1)
    from scipy.special import stdtrit  # the quantile of Student's t, without the weight of scipy.stats

    quantile = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2))
    half = quantile * float(np.std(known, ddof=1)) / math.sqrt(len(known))
    return Interval(mean, mean - half, mean + half, len(known))


def relative_changes(values: Iterable[float | None], references: Iterable[float | None]) -> list[float | None]:
    """(value - reference) / reference, pair by pair; None where one is missing or the reference is 0.

    Examples:
        >>> relative_changes([0.5, 3.0, None], [1.0, 0.0, 1.0])
        [-0.5, None, None]
    """
    return [
        None if value is None or not reference else (value - reference) / reference
        for value, reference in zip(values, references, strict=True)
    ]

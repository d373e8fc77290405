"""A few numbers from several seeds: their mean, and what the mean is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

__all__ = ["Interval", "interval", "relative_change"]

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


def relative_change(values: Iterable[float | None], references: Iterable[float | None]) -> Interval:
    """mean(value) / mean(reference) - 1 and its interval over pairs; missing if a value is, or if all references are 0.

    With R the ratio of the means, (value - R reference) / mean(reference) has mean 0, and its spread is that of R to
    first order. A mean of ratios would be too large: where a reference happens to be small, its ratio is huge.

    Examples:
        >>> relative_change([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
        Interval(mean=-0.5, low=-0.5, high=-0.5, n=3)
        >>> relative_change([0.5, None], [1.0, 1.0]).mean is None
        True
    """
    pairs = list(zip(values, references, strict=True))
    known = [(value, reference) for value, reference in pairs if value is not None and reference is not None]
    own, theirs = np.array(known, np.float64).reshape(-1, 2).T
    if len(known) < len(pairs) or not known or not theirs.mean() > 0:
        return Interval(None, None, None, len(pairs))
    ratio = own.mean() / theirs.mean()
    return interval((own - ratio * theirs) / theirs.mean() + (ratio - 1.0))

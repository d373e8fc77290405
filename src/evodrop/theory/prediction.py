"""What the paper predicts for data: the noises that we compare, what each is worth, and a table with a verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop._checks import Floats, checked_rate
from evodrop.definitions import n_draws
from evodrop.noise import Noise, make_noise, normalised
from evodrop.theory.bounds import checked_examples, checked_moments, risk_bound, squared_norm

WIDTH = 80  # of a line of text


def noises_for(moments: npt.ArrayLike, rate: float) -> dict[str, Noise]:
    """The noises that the paper and this library compare, by their names, at one rate: k = d (1 - rate) for all.

    Args:
        moments: (d,), E[x_i^2].
        rate: the fraction to drop, in [0, 1).

    Examples:
        >>> noises_for([4.0, 1.0, 1.0, 0.0], 0.5)["data-dependent"]
        Noise(chances=array([0.5 , 0.25, 0.25, 0.  ]), k=2)
    """
    moments, rate = checked_moments(moments), checked_rate(rate)
    k, scale = n_draws(len(moments), rate), np.sqrt(moments)
    return {
        "none": make_noise(None, moments, 0.0),
        "standard": make_noise(None, moments, rate, independent=True),
        "uniform": make_noise(None, moments, rate, k=k),
        "data-dependent": make_noise(scale, moments, rate, k=k),
        "water-filling": make_noise(scale, moments, rate, k=k, independent=True),
    }


class NoiseGap(NamedTuple):
    """Factors by which one noise has a smaller B^2 than another: SGD needs so many times fewer examples for a bound."""

    data_dependent_over_uniform: float
    data_dependent_over_standard: float
    water_filling_over_uniform: float
    water_filling_over_standard: float
    evenness: float  # (sum s)^2 / (d sum s^2) with s_i = sqrt(E x_i^2): 1 if all units are alike, 1/d if one has all


def noise_gap(moments: npt.ArrayLike, rate: float = 0.5) -> NoiseGap:
    """Is it worth it on my data? By what factor noise that follows the data has a smaller B^2 than noise that does not.

    Data-dependent noise has B^2 = E||x||^2 (1 + (d evenness - 1) / k) with k = d (1 - rate), standard dropout
    E||x||^2 / (1 - rate). Up to the rounding of k, it beats standard dropout just where the evenness is below
    rate + 1/d, and uniform multinomial noise wherever the moments differ; water-filling never loses to either.

    Args:
        moments, rate: as in :func:`noises_for`.

    Examples:
        >>> [round(factor, 2) for factor in noise_gap(1.0 / np.arange(1, 101) ** 2)]
        [2.28, 1.53, 2.9, 1.95, 0.16]
    """
    moments = normalised(checked_moments(moments))
    norm = {name: squared_norm(moments, noise) for name, noise in noises_for(moments, rate).items()}
    gaps = [
        norm[other] / norm[name] for name in ("data-dependent", "water-filling") for other in ("uniform", "standard")
    ]
    scale = np.sqrt(moments)
    return NoiseGap._make([*gaps, float(scale.sum() ** 2 / (len(scale) * (scale**2).sum()))])


class Prediction(NamedTuple):
    """What the theory predicts for one noise."""

    noise: str
    squared_norm: float  # B^2 = E||x * noise||^2 (Proposition 2)
    relative_norm: float  # B^2 / E||x||^2: 1 without noise
    bound: float  # G B r / sqrt(n) (Theorem 1)
    kept: float  # distinct units of d that survive, on average
    kept_of_row: float  # share of all values of X that are not 0 that survives, on average
    gain: float  # B^2 of standard dropout / B^2: how many times fewer examples give the bound of standard dropout


@dataclass(frozen=True, eq=False)
class Report:
    """The predictions for a data set; print it. ``evodrop theory`` draws the noises too."""

    n: int
    d: int
    rate: float
    k: int
    squared_norm: float  # E||x||^2
    gap: NoiseGap
    predictions: tuple[Prediction, ...]
    noises: dict[str, Noise]  # what was predicted for

    def __getitem__(self, noise: str) -> Prediction:
        """The prediction for one noise, by its name."""
        if noise not in self.noises:
            raise KeyError(f"{noise!r} is not one of {', '.join(map(repr, self.noises))}")
        return self.predictions[list(self.noises).index(noise)]

    def __str__(self) -> str:
        """Headline, table and verdict."""
        cells: list[tuple[str, ...]] = [("noise", "B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain")]
        for noise, norm, relative, bound, kept, kept_of_row, gain in self.predictions:
            figures = [f"{norm:.4g}", f"{relative:.4g}", f"{bound:.4g}", f"{kept:,.{kept < 1000:d}f}"]
            cells.append((noise, *figures, f"{kept_of_row:.1%}", f"{gain:.4g}"))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        headline = (
            f"{self.n:,} examples x {self.d:,} units, rate {self.rate:g}, k = {self.k:,} draws, "
            f"E||x||^2 = {self.squared_norm:.4g}"
        )
        return "\n\n".join([textwrap.fill(headline, WIDTH), "\n".join(table), textwrap.fill(self.verdict(), WIDTH)])

    def verdict(self) -> str:
        """In words: does noise that follows the data pay here, by the paper's own criterion?"""
        ratio = 1.0 / self.gap.data_dependent_over_standard
        pays = "pays here" if ratio < 1 else "does not pay here"
        threshold = (1.0 + self.k * self.rate / (1.0 - self.rate)) / self.d  # where the two B^2 are equal
        return (
            f"By the paper's criterion data-dependent noise {pays}: its B^2 is {ratio:.3f} of standard dropout's. "
            f"The evenness of the units is {self.gap.evenness:.3f}; it pays below {threshold:.3f}. "
            f"Of all values that are not 0, {self['data-dependent'].kept_of_row:.0%} survive it. "
            "Gain: how many times fewer examples reach the bound of standard dropout. A bound is no forecast."
        )


def report(X: Any, rate: float = 0.5, *, G: float = 1.0, r: float = 1.0, n: int | None = None) -> Report:
    """What does the paper predict for my data?

    For no noise, standard dropout, uniform multinomial, data-dependent and water-filling noise at the same rate: B^2
    (Proposition 2), the risk bound (Theorem 1), the units that survive, and the gain over standard dropout.

    Args:
        X: (n, d) array or SciPy sparse array, the examples; or blocks of rows, a list or an iterator of them,
            for data larger than memory. A million features take seconds.
        rate: the fraction to drop; k = d (1 - rate).
        G, r, n: as in :func:`risk_bound`; by default, n is the number of examples.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(1000, 50)) / np.arange(1, 51)
        >>> print(report(X))  # doctest: +ELLIPSIS
        1,000 examples x 50 units, rate 0.5, k = 25 ...
    """
    checked_rate(rate)
    risk_bound(G, 1.0, r, 1 if n is None else n)  # bad arguments are found before the data are read
    rows, moments, density = _summary(X)
    total, noises = float(moments.sum()), noises_for(moments, rate)
    norms = {name: squared_norm(moments, noise) for name, noise in noises.items()}
    predictions = []
    for name, norm in norms.items():
        bound, survival = risk_bound(G, math.sqrt(norm), r, rows if n is None else n), noises[name].survival
        kept, kept_of_row = float(survival.sum()), float(survival @ density / density.sum())
        predictions.append(Prediction(name, norm, norm / total, bound, kept, kept_of_row, norms["standard"] / norm))
    k = n_draws(len(moments), rate)
    return Report(rows, len(moments), rate, k, total, noise_gap(moments, rate), tuple(predictions), noises)


def _summary(X: Any) -> tuple[int, Floats, Floats]:
    """The number of rows, the second moments, and the share of rows that have each unit."""
    is_list = isinstance(X, list | tuple) and len(X) > 0 and getattr(X[0], "ndim", 0) == 2
    rows, squares, present = 0, np.zeros(0), np.zeros(0)
    for block, moments in map(checked_examples, X if is_list or isinstance(X, Iterator) else [X]):
        if rows == 0:
            squares, present = np.zeros((2, block.shape[1]))
        if block.shape[1] != len(squares):
            raise ValueError(f"the block of rows from {rows} on has {block.shape[1]} units, the first {len(squares)}")
        rows += block.shape[0]
        squares += moments * block.shape[0]
        present += (block != 0).sum(axis=0)
    if rows == 0:
        raise ValueError("X has no examples, but a prediction takes at least one")
    if not squares.any():
        raise ValueError(f"X or its squares are 0 in all of its {rows} examples; give values, or scale them up")
    return rows, squares / rows, present / rows

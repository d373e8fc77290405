"""What the paper predicts for a data set: one table, and a verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evodrop._checks import Floats, checked_rate
from evodrop.definitions import n_draws
from evodrop.noise import Noise
from evodrop.theory.bounds import (
    NoiseGap,
    check_length,
    checked_examples,
    finite_moments,
    noise_gap,
    noises_for,
    risk_bound,
    squared_norm,
)

__all__ = ["Prediction", "Report", "report"]

MOST_UNITS = 100_000_000  # a row of numbers for each noise has to fit in memory
HEAD: tuple[str, ...] = ("noise", "B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain")
WIDTH = 80  # of a line of text


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
        for prediction in self.predictions:
            if prediction.noise == noise:
                return prediction
        raise KeyError(f"{noise!r} is not one of {', '.join(map(repr, self.noises))}")

    def __str__(self) -> str:
        """Headline, table and verdict."""
        cells = [HEAD]
        for noise, norm, relative, bound, kept, kept_of_row, gain in self.predictions:
            figures = [f"{norm:.4g}", f"{relative:.4g}", f"{bound:.4g}", f"{kept:,.{kept < 1000:d}f}"]
            cells.append((noise, *figures, f"{kept_of_row:.1%}", f"{gain:.4g}"))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
        headline = (
            f"{self.n:,} examples x {self.d:,} units, rate {self.rate:g}, k = {self.k:,} draws, "
            f"E||x||^2 = {self.squared_norm:.4g}"
        )
        paragraphs = [textwrap.fill(headline, WIDTH), "\n".join(table), textwrap.fill(self.verdict(), WIDTH)]
        return "\n\n".join(paragraphs)

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
        G: the Lipschitz constant of the loss: 1 for the logistic and the hinge loss.
        r: the largest norm of the weights that the bound compares with.
        n: the number of steps of the bound, the number of examples by default.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(1000, 50)) / np.arange(1, 51)
        >>> prediction = report(X)
        >>> round(prediction["data-dependent"].gain, 2), round(prediction["water-filling"].gain, 2)
        (1.37, 1.9)
        >>> print(prediction)  # doctest: +ELLIPSIS
        1,000 examples x 50 units, rate 0.5, k = 25 ...
    """
    checked_rate(rate)
    risk_bound(G, 1.0, r, 1 if n is None else n)  # bad arguments are found before the data are read
    rows, moments, density = _summary(X)
    total = float(moments.sum())
    noises = noises_for(moments, rate)
    norms = {name: squared_norm(moments, noise) for name, noise in noises.items()}
    if not all(map(math.isfinite, norms.values())):
        raise ValueError("X has units of so unequal size that E||x * noise||^2 overflows; leave out the smallest")
    predictions = tuple(
        Prediction(
            noise=name,
            squared_norm=norm,
            relative_norm=norm / total,
            bound=risk_bound(G, math.sqrt(norm), r, rows if n is None else n),
            kept=float(noises[name].survival.sum()),
            kept_of_row=float(noises[name].survival @ density / density.sum()),
            gain=norms["standard"] / norm,
        )
        for name, norm in norms.items()
    )
    k = n_draws(len(moments), rate)
    return Report(rows, len(moments), rate, k, total, noise_gap(moments, rate), predictions, noises)


def _summary(X: Any) -> tuple[int, Floats, Floats]:
    """The number of rows, the second moments, and the share of rows that have each unit."""
    if isinstance(X, list | tuple):
        is_blocks = bool(X) and len(getattr(X[0], "shape", ())) == 2
    else:
        is_blocks = isinstance(X, Iterable) and not (hasattr(X, "shape") or isinstance(X, str | bytes))
    rows, squares, present = 0, np.zeros(0), np.zeros(0)
    for block in map(checked_examples, X if is_blocks else [X]):
        d = block.shape[1]
        if d > MOST_UNITS:
            raise ValueError(f"X has {d:,} units, but a report takes {MOST_UNITS:,}; number the features anew")
        if rows == 0:
            squares, present = np.zeros((2, d))
        check_length(block, f"the block of rows from {rows} on", len(squares), "the first")
        rows += block.shape[0]
        squares += finite_moments(block) * block.shape[0]
        if isinstance(block, np.ndarray):
            present += (block != 0).sum(axis=0)
        else:
            present += np.bincount(block.indices, block.data != 0, d)
    if rows == 0:
        raise ValueError("X has no examples, but a prediction takes at least one")
    if not squares.any():
        raise ValueError(f"X or its squares are 0 in all of its {rows} examples; give values, or scale them up")
    return rows, squares / rows, present / rows

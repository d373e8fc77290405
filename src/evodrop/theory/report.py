"""What the paper predicts for a data set: one table, one picture."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evodrop._checks import checked_rate
from evodrop.definitions import n_draws
from evodrop.theory.arguments import Examples, Floats, checked_examples, checked_length, finite_moments
from evodrop.theory.noises import Noise
from evodrop.theory.risk import NoiseGap, noise_gap, noises_for, risk_bound
from evodrop.theory.statistics import squared_norm

__all__ = ["Prediction", "Report", "report"]

MOST_UNITS = 100_000_000  # a row of numbers for each noise has to fit in memory


class Prediction(NamedTuple):
    """What the theory says of one noise."""

    noise: str
    squared_norm: float  # B^2 = E||x * noise||^2 (Proposition 2)
    loudness: float  # B^2 / E||x||^2: 1 without noise
    bound: float  # G B r / sqrt(n) (Theorem 1)
    kept: float  # distinct units of d that survive, on average
    kept_of_row: float  # share of all values of X that are not 0 that survives, on average
    gain: float  # B^2 of standard dropout / B^2: how many times fewer examples give the bound of standard dropout


@dataclass(frozen=True, eq=False)
class Report:
    """The predictions for a data set; print it, or ask it for a :meth:`figure`."""

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
        from evodrop.theory.table import as_text

        return as_text(self)

    def __rich__(self) -> Any:
        from evodrop.theory.table import as_group

        return as_group(self)

    def figure(self) -> Any:
        """A matplotlib Figure: the sorted sampling probabilities, and the chance of each unit to survive."""
        from evodrop.theory.figure import draw

        return draw(self)

    def save_figure(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`figure` to a file whose ending names the format: png, pdf or svg."""
        from evodrop.theory.figure import save

        save(self, path)


def report(X: Any, rate: float = 0.5, *, G: float = 1.0, r: float = 1.0, n: int | None = None) -> Report:
    """What does the paper predict for my data?

    For no noise, standard dropout, uniform multinomial, data-dependent and water-filling noise at the same rate: B^2
    (Proposition 2), the risk bound (Theorem 1), the units that survive, and the gain over standard dropout.

    Args:
        X: (n, d) array or SciPy sparse array, the examples; or blocks of rows, a list or an iterator of them,
            for data larger than memory. A million features take seconds.
        rate: the fraction to drop; k = d (1 - rate).
        G: how steep the loss is at most: 1 for the logistic and the hinge loss.
        r: how long the weights are that the bound compares with.
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
    risk_bound(G, 1.0, r, 1 if n is None else n)  # bad arguments are told before the data are read
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
            loudness=norm / total,
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
    blocks = X if _is_blocks(X) else [X]
    rows, squares, present = 0, np.zeros(0), np.zeros(0)
    for block in map(checked_examples, blocks):
        if block.shape[1] > MOST_UNITS:
            raise ValueError(
                f"X has {block.shape[1]:,} units, but a report takes {MOST_UNITS:,}; number the features anew"
            )
        if rows == 0:
            squares, present = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        checked_length(block, f"the block of rows from {rows} on", len(squares), "the first")
        rows += block.shape[0]
        squares += finite_moments(block) * block.shape[0]
        present += _present(block)
    if rows == 0:
        raise ValueError("X has no examples, but a prediction takes at least one")
    if not squares.any():
        raise ValueError(f"X or its squares are 0 in all of its {rows} examples; give values, or scale them up")
    return rows, squares / rows, present / rows


def _is_blocks(X: Any) -> bool:
    """Whether X is a row of blocks, not one matrix: something to loop over whose parts are matrices."""
    if isinstance(X, list | tuple):
        return bool(X) and len(getattr(X[0], "shape", ())) == 2
    return isinstance(X, Iterable) and not (hasattr(X, "shape") or isinstance(X, str | bytes))


def _present(block: Examples) -> Floats:
    """In how many rows each unit is not 0."""
    if isinstance(block, np.ndarray):
        return np.asarray((block != 0).sum(axis=0), np.float64)
    return np.bincount(block.indices, (block.data != 0).astype(np.float64), block.shape[1]).astype(np.float64)

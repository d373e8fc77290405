"""From the name of a dropout to the arrays that a kernel eats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evodrop.definitions import n_draws
from evodrop.linear.draws import Noise, spread
from evodrop.linear.kernels import BERNOULLI, CLEAN, MULTINOMIAL, Examples
from evodrop.linear.poisson import build_tables
from evodrop.noise import MOST_DRAWS, draws_for_kept, draws_for_noise, fill_to_level, keep_for_noise, most_draws

__all__ = ["DROPOUTS", "MOST_DRAWS", "Plan", "check_options", "make_plan"]

Floats = npt.NDArray[np.float64]

DROPOUTS = ("none", "standard", "uniform", "data-dependent", "water-filling", "weight-aware")
WEIGHT_SHARE = 0.5  # of the weight-aware probabilities; the rest is data-dependent, so that every seen feature has some
LEAST = 1e-300  # a feature whose square is 0 in floating point is never drawn, and never 0 / 0


class Plan(NamedTuple):
    """A dropout ready for use."""

    noise: Noise
    probs: Floats | None  # (d,): sampling probabilities, or keep probabilities where there is no k to draw
    k: float | None  # draws, or the expected number of kept features
    squared_norm: float  # B^2 = E||x * noise||^2, Proposition 2


def make_plan(
    dropout: str,
    moments: Floats,
    examples: Examples,
    seen: npt.NDArray[np.bool_],
    *,
    rate: float = 0.5,
    k: int | None = None,
    match: str = "draws",
    weight_norms: Callable[[], Floats] | None = None,
) -> Plan:
    """The plan of a dropout for features with second moments ``moments``.

    Args:
        dropout: one of ``DROPOUTS``.
        moments: (d,), E[x_i^2] over all data so far.
        examples: the rows to come.
        seen: (d,), the features that they have; others get no table.
        rate: the fraction to drop.
        k: number of draws, instead of the rate.
        match: see :mod:`evodrop.noise`.
        weight_norms: gives (d,), how large the weights of each feature are now; asked for "weight-aware" only.

    Examples:
        >>> from scipy.sparse import csr_array
        >>> from evodrop.linear.model import make_examples
        >>> X = csr_array([[3.0, -1.0, 0.0, 0.0]])
        >>> examples = make_examples(X, np.array([0]), np.ones(1))
        >>> plan = make_plan("data-dependent", X.toarray()[0] ** 2, examples, X.toarray()[0] != 0)
        >>> plan.probs, plan.k
        (array([0.75, 0.25, 0.  , 0.  ]), 2)
    """
    check_options(dropout, k, match)
    total = float(moments.sum())
    exact = rate == 0.0 and (match != "draws" or dropout == "standard")  # what the match approaches: no noise
    if dropout == "none" or total == 0.0 or exact:
        return Plan(_noise(CLEAN, 0, np.ones(1), examples, None), None, None, total)
    if dropout == "standard":
        keep = np.full(len(moments), 1.0 - rate)
        return Plan(_noise(BERNOULLI, 0, keep[:1], examples, None), keep, float(keep.sum()), total / (1.0 - rate))
    root = np.sqrt(moments)
    probs = root / root.sum()
    if dropout == "water-filling":
        return _water_filling(moments, probs, examples, seen, rate, k, match)
    if dropout == "uniform":
        probs = np.full(len(moments), 1.0 / len(moments))
    if dropout == "weight-aware" and weight_norms is not None:
        tight = weight_norms() * root  # |w_i| sqrt(E x_i^2), the supplement's tighter bound
        if tight.any() and np.isfinite(tight).all():
            tight /= tight.max()  # so that the sum is finite
            probs = WEIGHT_SHARE * (tight / tight.sum()) + (1.0 - WEIGHT_SHARE) * probs
    draws = _draws(moments, probs, rate, k, match)
    noise = (
        _noise(MULTINOMIAL, draws, draws * probs[:1], examples, None)
        if dropout == "uniform"
        else _noise(MULTINOMIAL, draws, draws * probs, examples, seen)
    )
    spread = float(np.divide(moments, probs, out=np.zeros_like(moments), where=probs > 0).sum())
    return Plan(noise, probs, draws, spread / draws + (draws - 1) / draws * total)


def check_options(dropout: str, k: int | None, match: str) -> None:
    """Raise a ValueError if these do not go together."""
    if k is not None and match != "draws":
        raise ValueError(f"k is {k} and match is {match!r}, but a match chooses k; give one of them")
    if k is not None and dropout in ("none", "standard"):
        raise ValueError(f"k is {k}, but dropout={dropout!r} draws nothing; set rate instead")


def _draws(moments: Floats, probs: Floats, rate: float, k: int | None, match: str) -> int:
    if match == "draws":
        return n_draws(len(probs), rate) if k is None else int(k)
    most = min(most_draws(len(probs), rate), MOST_DRAWS)
    if match == "distinct":
        return int(draws_for_kept(probs, (probs > 0).sum() * (1.0 - rate), most))
    return int(draws_for_noise(moments / moments.max(), probs, rate, most))


def _water_filling(
    moments: Floats,
    probs: Floats,
    examples: Examples,
    seen: npt.NDArray[np.bool_],
    rate: float,
    k: int | None,
    match: str,
) -> Plan:
    if match == "noise":
        keep = keep_for_noise(moments / moments.max(), probs, rate)
    elif match == "distinct":  # independent features do not repeat
        keep = fill_to_level(probs, (probs > 0).sum() * (1.0 - rate))
    else:
        keep = fill_to_level(probs, n_draws(len(probs), rate) if k is None else k)
    spread = np.divide(moments, keep, out=np.zeros_like(moments), where=keep > 0)
    return Plan(_noise(BERNOULLI, 0, keep, examples, seen), keep, float(keep.sum()), float(spread.sum()))


def _noise(scheme: int, k: int, rates: Floats, examples: Examples, seen: Any) -> Noise:
    """For the features seen; if ``seen`` is None all are alike, and there is one rate."""
    rates = np.maximum(rates, LEAST)
    if not np.isfinite(rates).all():  # a kernel would draw for ever
        raise ValueError("the probabilities of the dropout are not finite; divide X by its largest value")
    mask, where, tables = 0 if seen is None else -1, np.zeros(len(rates), np.uint32), np.zeros(0, np.uint16)
    if scheme == CLEAN:
        return Noise(scheme, k, mask, rates, tables, where, rates, rates)
    if scheme == MULTINOMIAL:
        where, tables = build_tables(rates, np.arange(1) if seen is None else np.flatnonzero(seen))
    cells = spread(examples.indptr, examples.indices, examples.data, mask, rates, where)
    return Noise(scheme, k, mask, rates, tables, *cells)

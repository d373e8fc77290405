"""What noise costs: E||x * noise||^2 (Proposition 2), its covariance (Eq. 5), and what SGD reaches (Theorem 1).

A noise is an :class:`evodrop.noise.Noise`; :func:`evodrop.noise.make_noise` gives one for a rate.
"""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop._checks import Floats, checked_integer, checked_keep, checked_masses, checked_rate
from evodrop.definitions import n_draws, second_moments
from evodrop.noise import Noise, make_noise, normalised

__all__ = ["NoiseGap", "bound_step_size", "noise_covariance", "noise_gap", "noises_for", "risk_bound", "squared_norm"]

Examples: TypeAlias = "Floats | sparse.csr_array"
LARGEST = 2**53  # beyond, a float does not distinguish k from k + 1
SUM_TOLERANCE = 1e-6  # probabilities that were rounded to float32 are still probabilities
REMEDIES = {1: "; one example is X[None, :]", 3: "; blocks of rows are given as an iterator, iter(blocks)"}


def squared_norm(moments: npt.ArrayLike, noise: Noise) -> float:
    """B^2 = E||x * noise||^2: what the noise costs in the risk bound (Proposition 2).

    1/k sum_i E[x_i^2] / p_i + (k - 1)/k sum_i E[x_i^2] for k draws, sum_i E[x_i^2] / pi_i for independent noise.

    Args:
        moments: (d,), E[x_i^2]; see :func:`evodrop.definitions.second_moments`.
        noise: on d units; its chances are positive wherever the moments are.

    Examples:
        >>> moments = np.array([9.0, 1.0])
        >>> squared_norm(moments, Noise([0.5, 0.5], 2)), round(squared_norm(moments, Noise([0.75, 0.25], 2)), 9)
        (15.0, 13.0)
        >>> squared_norm(moments, Noise([0.5, 0.5])), squared_norm(moments, Noise([1.0, 0.5]))
        (20.0, 11.0)
    """
    moments = checked_moments(moments)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        return added_norm(moments, noise) + float(moments.sum())


def added_norm(moments: npt.ArrayLike, noise: Noise) -> float:
    """What the noise adds to E||x||^2: sum_i (spread_i - shared) E[x_i^2], the trace of the mean covariance.

    Examples:
        >>> added_norm([9.0, 1.0], Noise([0.75, 0.5]))
        4.0
    """
    moments, noise = checked_moments(moments), checked_noise(noise)
    check_unbiased(moments, "moments", noise)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        return float((moments * np.where(noise.drawn, noise.spread - noise.shared, 0.0)).sum())


def noise_covariance(x: Any, noise: Noise) -> Any:
    """The covariance of x * noise (Eq. 5).

    For k draws diag(x_i^2 / p_i) / k - x x' / k: each unit has its own noise, and all compete for the same k draws. For
    independent noise diag(x_i^2 (1 - pi_i) / pi_i).

    Args:
        x: (d,) array, or a sparse array of one example.
        noise: on d units; its chances are positive wherever x is not 0.

    Returns:
        (d, d) array; sparse if x is, so that d may be a million.

    Examples:
        >>> noise_covariance(np.array([3.0, 1.0]), Noise([0.75, 0.25], 2))
        array([[ 1.5, -1.5],
               [-1.5,  1.5]])
    """
    x, noise = x if sparse.issparse(x) else as_floats(x, "x"), checked_noise(noise)
    if not max(x.shape, default=0) == math.prod(x.shape) > 0:
        raise ValueError(f"x has shape {x.shape}, but it takes one example: shape (d,), d >= 1")
    row = checked_examples(x.reshape(1, -1), "x")
    squares = finite_moments(row, "x")
    check_unbiased(squares, "x", noise)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        own = squares * noise.spread
    if isinstance(row, np.ndarray):
        return np.diag(own) - noise.shared * np.outer(row, row)
    diagonal = sparse.dia_array((own[None], [0]), shape=(len(own), len(own)))
    return (diagonal - noise.shared * (row.T @ row)).tocsr()


def risk_bound(G: float, B: float, r: float, n: int) -> float:
    """G B r / sqrt(n): how much more risk n steps of SGD leave, on average, than the best weights have (Theorem 1).

    For a convex loss it bounds E[L(w_n) + R(w_n)] - L(w*) - R(w*) for every ||w*|| <= r. L is the risk, R what the
    noise adds to it (see :func:`~evodrop.theory.regularizer`), w_n the mean of n iterates that start at 0, and the step
    that of :func:`bound_step_size`. To halve it takes four times the examples; to halve B^2 is worth half of them.

    Args:
        G: the Lipschitz constant of the loss: 1 for the logistic and the hinge loss.
        B: the root of B^2 = E||x * noise||^2; see :func:`squared_norm`.
        r: the largest norm of the weights that we compare with.
        n: the number of steps, one example each.

    Examples:
        >>> risk_bound(G=1, B=2, r=3, n=100)
        0.6
    """
    G, B, r, n = _checked_problem(G, B, r, n)
    return G * B * r / math.sqrt(n)


def bound_step_size(G: float, B: float, r: float, n: int) -> float:
    """r / (G B sqrt(n)): the step at which the bound of Theorem 1 is least.

    The proof gives r^2 / (2 eta n) + eta G^2 B^2 / 2 for a step eta; this one makes the two terms equal.

    Args:
        G, B, r, n: as in :func:`risk_bound`.

    Examples:
        >>> bound_step_size(G=1, B=2, r=3, n=100)
        0.15
    """
    G, B, r, n = _checked_problem(G, B, r, n)
    return r / G / B / math.sqrt(n)


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
    """Factors by which one noise has a smaller B^2 than another: above 1 it pays, by the paper's criterion.

    To reach the same bound, SGD needs that many times fewer examples.
    """

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
        moments: (d,), E[x_i^2].
        rate: the fraction to drop, in [0, 1).

    Examples:
        >>> even, skewed = np.ones(100), 1.0 / np.arange(1, 101) ** 2
        >>> round(noise_gap(even).data_dependent_over_standard, 3)  # draws repeat: nearly 3 against 2
        0.671
        >>> _, data_dependent, _, water_filling, evenness = noise_gap(skewed)
        >>> round(data_dependent, 2), round(water_filling, 2), round(evenness, 3)
        (1.53, 1.95, 0.165)
    """
    moments = normalised(checked_moments(moments))
    norm = {name: squared_norm(moments, noise) for name, noise in noises_for(moments, rate).items()}
    scale = np.sqrt(moments)
    return NoiseGap(
        data_dependent_over_uniform=norm["uniform"] / norm["data-dependent"],
        data_dependent_over_standard=norm["standard"] / norm["data-dependent"],
        water_filling_over_uniform=norm["uniform"] / norm["water-filling"],
        water_filling_over_standard=norm["standard"] / norm["water-filling"],
        evenness=float(scale.sum() ** 2 / (len(scale) * (scale**2).sum())),
    )


def checked_noise(noise: Noise) -> Noise:
    """The noise in float64, its sampling probabilities with a sum of 1, or a ValueError."""
    if not isinstance(noise, Noise):
        raise ValueError(
            f"noise is {noise!r}, but it takes a Noise(chances, k), such as evodrop.noise.make_noise gives"
        )
    chances = as_floats(noise.chances, "chances")
    if noise.k is None:
        return Noise(checked_keep(chances))
    k = checked_integer(noise.k, "k", "the number of draws", most=LARGEST)
    with np.errstate(over="ignore"):
        total = checked_masses(chances, "probs").sum()
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"probs sum to {total:.9g}, but probabilities sum to 1; divide them by their sum")
    return Noise(chances / total, k)


def check_unbiased(moments: Floats, name: str, noise: Noise) -> None:
    """Raise a ValueError unless the noise has as many units, and keeps at times each that is not always zero."""
    check_length(moments, name, len(noise.chances), "the noise")
    lost = ~noise.drawn & (moments > 0)
    if lost.any():
        raise ValueError(
            f"unit {int(np.flatnonzero(lost)[0])} is not always zero, but the noise never keeps it, so that the "
            "mean of the noise is not 1; give every such unit a positive probability"
        )


def checked_moments(moments: npt.ArrayLike) -> Floats:
    """Second moments as (d,) float64: finite, not negative, not all zero."""
    masses: Floats = checked_masses(as_floats(moments, "moments"), "moments")
    return masses


def as_floats(values: Any, name: str) -> Floats:
    """The values as an array of float64, or a ValueError if they are not real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO":  # what NumPy would convert besides, dates and texts, are not numbers
            return array.astype(np.float64, copy=False)
        found = f"an array of {array.dtype}"
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{values!r:.60} ({error})"
    remedy = "; take absolute values, or both parts as units" if "complex" in found else ""
    raise ValueError(f"{name} is {found}, but it takes real numbers{remedy}")


def checked_examples(X: Any, name: str = "X") -> Examples:
    """Examples as an (n, d) float64 array, or csr_array if they are sparse: at least one of each, finite."""
    if isinstance(X, str | bytes | os.PathLike):
        raise ValueError(
            f"{name} is {X!r}, but it takes the examples themselves; evodrop.linear.iter_svmlight reads a file"
        )
    if sparse.issparse(X):
        examples = sparse.csr_array(X)
        as_floats(examples.data, name)
        examples = examples.astype(np.float64, copy=False)
        if not examples.has_canonical_format:
            examples = examples.copy()  # the arrays may still be those of X
            examples.sum_duplicates()  # a value that is given twice counts as the sum, as SciPy has it
    else:
        examples = as_floats(X, name)
    if examples.ndim != 2 or 0 in examples.shape:
        remedy = REMEDIES.get(examples.ndim, "") if 0 not in examples.shape else ""
        raise ValueError(
            f"{name} has shape {examples.shape}, but it takes at least one example: (n, d), n, d >= 1{remedy}"
        )
    if not np.isfinite(examples.data if sparse.issparse(examples) else examples).all():
        raise ValueError(f"{name} has a value that is nan or infinite, but its values are finite; remove such examples")
    return examples


def finite_moments(X: Examples, name: str = "X") -> Floats:
    """(d,): E[x_i^2], unless a square or the sum of all is too large for a float."""
    with np.errstate(over="ignore"):
        moments: Floats = second_moments(X)
        finite = math.isfinite(moments.sum())
    if not finite:
        raise ValueError(f"{name} has values whose squares overflow; divide {name} by its largest value")
    return moments


def check_length(value: Any, name: str, d: int, reference: str) -> None:
    """Raise a ValueError unless the last dimension of value is d, as that of its reference is."""
    if value.shape[-1] != d:
        raise ValueError(f"{name} has {value.shape[-1]} units, but {reference} {d}; both take one value per unit")


def checked_positive(value: float, name: str, meaning: str) -> float:
    """A finite number above 0."""
    if not (isinstance(value, numbers.Real) and 0.0 < value < math.inf):
        raise ValueError(f"{name} is {value!r}, but {meaning} is a finite number above 0")
    return float(value)


def _checked_problem(G: float, B: float, r: float, n: int) -> tuple[float, float, float, int]:
    return (
        checked_positive(G, "G", "the Lipschitz constant of the loss"),
        checked_positive(B, "B", "the root of E||x * noise||^2"),
        checked_positive(r, "r", "the largest norm of the weights"),
        checked_integer(n, "n", "the number of steps", most=LARGEST),
    )

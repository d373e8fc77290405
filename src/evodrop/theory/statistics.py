"""What the noise does to squared norms and covariances (Proposition 2, Eq. 5)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evodrop.theory.arguments import Examples, Floats, checked_examples, checked_length, checked_moments, finite_moments
from evodrop.theory.noises import BernoulliNoise, MultinomialNoise, Noise

__all__ = [
    "added_norm",
    "expected_squared_norm",
    "expected_squared_norm_bernoulli",
    "noise_covariance",
    "noise_covariance_bernoulli",
    "score_variances",
    "squared_norm",
    "unbiased_moments",
]


def expected_squared_norm(moments: npt.ArrayLike, probs: npt.ArrayLike, k: int) -> float:
    """B^2 = E||x * noise||^2 of multinomial noise: what the noise costs in the risk bound (Proposition 2).

    1/k sum_i E[x_i^2] / p_i + (k - 1)/k sum_i E[x_i^2]

    Args:
        moments: (d,), E[x_i^2]; see :func:`evodrop.definitions.second_moments`.
        probs: (d,), the sampling probabilities, positive wherever the moments are.
        k: the number of draws.

    Examples:
        >>> moments = np.array([9.0, 1.0])
        >>> expected_squared_norm(moments, [0.5, 0.5], 2), round(expected_squared_norm(moments, [0.75, 0.25], 2), 9)
        (15.0, 13.0)
    """
    return squared_norm(moments, MultinomialNoise(np.asarray(probs), k))


def expected_squared_norm_bernoulli(moments: npt.ArrayLike, keep: npt.ArrayLike) -> float:
    """B^2 = E||x * noise||^2 of independent Bernoulli noise: sum_i E[x_i^2] / pi_i.

    Args:
        moments: (d,), E[x_i^2].
        keep: (d,), the keep probabilities, positive wherever the moments are; standard dropout has 1 - rate for all.

    Examples:
        >>> moments = np.array([9.0, 1.0])
        >>> expected_squared_norm_bernoulli(moments, [0.5, 0.5]), expected_squared_norm_bernoulli(moments, [1, 0.5])
        (20.0, 11.0)
    """
    return squared_norm(moments, BernoulliNoise(np.asarray(keep)))


def noise_covariance(x: Any, probs: npt.ArrayLike, k: int) -> Any:
    """The covariance of x * noise over multinomial noise (Eq. 5).

    diag(x_i^2 / p_i) / k - x x' / k: each unit has its own noise, and all compete for the same k draws.

    Args:
        x: (d,) array, or a sparse array of one example.
        probs: (d,), the sampling probabilities, positive wherever x is not 0.
        k: the number of draws.

    Returns:
        (d, d) array; sparse if x is, so that d may be a million.

    Examples:
        >>> noise_covariance(np.array([3.0, 1.0]), [0.75, 0.25], 2)
        array([[ 1.5, -1.5],
               [-1.5,  1.5]])
    """
    return _covariance(x, MultinomialNoise(np.asarray(probs), k))


def noise_covariance_bernoulli(x: Any, keep: npt.ArrayLike) -> Any:
    """The covariance of x * noise over independent Bernoulli noise: diag(x_i^2 (1 - pi_i) / pi_i).

    Args:
        x: (d,) array, or a sparse array of one example.
        keep: (d,), the keep probabilities, positive wherever x is not 0.

    Returns:
        (d, d) array; sparse if x is.

    Examples:
        >>> noise_covariance_bernoulli(np.array([3.0, 1.0]), [0.9, 0.5])
        array([[1., 0.],
               [0., 1.]])
    """
    return _covariance(x, BernoulliNoise(np.asarray(keep)))


def squared_norm(moments: npt.ArrayLike, noise: Noise) -> float:
    """B^2 = E||x * noise||^2 = E||x||^2 + sum_i (spread_i - shared) E[x_i^2], whatever the noise.

    Args:
        moments: (d,), E[x_i^2].
        noise: a MultinomialNoise or a BernoulliNoise, positive wherever the moments are.

    Examples:
        >>> squared_norm([9.0, 1.0], BernoulliNoise([0.9, 0.5]))
        12.0
    """
    return added_norm(moments, noise) + float(np.sum(moments))


def added_norm(moments: npt.ArrayLike, noise: Noise) -> float:
    """What the noise adds to E||x||^2: sum_i (spread_i - shared) E[x_i^2], the trace of the mean covariance.

    Examples:
        >>> added_norm([9.0, 1.0], BernoulliNoise([0.75, 0.5]))
        4.0
    """
    moments = unbiased_moments(checked_moments(moments), "moments", noise)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        return float((moments * np.where(noise.drawn, noise.spread - noise.shared, 0.0)).sum())


def score_variances(w: Floats, X: Examples, noise: Noise) -> Floats:
    """(n,): the variance w' Cov(x * noise) w of each example's score, sum_i spread_i w_i^2 x_i^2 - shared (w.x)^2.

    Examples:
        >>> score_variances(np.ones(2), np.array([[3.0, 1.0]]), BernoulliNoise([0.9, 0.5]))
        array([2.])
    """
    squares = X * X if isinstance(X, np.ndarray) else X.multiply(X)
    with np.errstate(over="ignore", invalid="ignore"):
        variances: Floats = squares @ (noise.spread * w * w) - noise.shared * (X @ w) ** 2
    if not np.isfinite(variances).all():
        raise ValueError(
            "w and X are so large that the squares of their scores overflow; divide one by its largest value"
        )
    return np.maximum(variances, 0.0)  # what rounding leaves of 0 may be below it


def unbiased_moments(moments: Floats, name: str, noise: Noise) -> Floats:
    """The moments, if the noise fits them: as many units, and none that is dropped always but not always zero."""
    if not isinstance(noise, MultinomialNoise | BernoulliNoise):
        raise ValueError(f"noise is {noise!r}, but it takes a MultinomialNoise(probs, k) or a BernoulliNoise(keep)")
    checked_length(moments, name, len(noise.spread), "the noise")
    lost = ~noise.drawn & (moments > 0)
    if lost.any():
        raise ValueError(
            f"unit {int(np.flatnonzero(lost)[0])} is not always zero, but the noise never keeps it, so that the "
            "mean of the noise is not 1; give every such unit a positive probability"
        )
    return moments


def _covariance(x: Any, noise: Noise) -> Any:
    x = x if sparse.issparse(x) else np.asarray(x, np.float64)
    if not max(x.shape, default=0) == math.prod(x.shape) > 0:
        raise ValueError(f"x has shape {x.shape}, but it takes one example: shape (d,), d >= 1")
    row = checked_examples(x.reshape(1, -1), "x")
    squares = unbiased_moments(finite_moments(row, "x"), "x", noise)
    with np.errstate(over="ignore"):  # infinite is the answer where it is not a float
        own = squares * noise.spread
    if isinstance(row, np.ndarray):
        return np.diag(own) - noise.shared * np.outer(row, row)
    diagonal = sparse.dia_array((own[None], [0]), shape=(len(own), len(own)))
    return (diagonal - noise.shared * (row.T @ row)).tocsr()

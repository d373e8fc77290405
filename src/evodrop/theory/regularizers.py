"""What the noise adds to the risk of a logistic model (Proposition 1), its expansion (Eq. 4) and its bounds.

Throughout, the loss is log(1 + exp(-y w.x)), E_D is the mean over the rows of X, and s is the logistic function.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from evodrop.theory.arguments import (
    Examples,
    Floats,
    checked_examples,
    checked_length,
    checked_moments,
    checked_weights,
    finite_moments,
)
from evodrop.theory.noises import Noise
from evodrop.theory.statistics import added_norm, score_variances, unbiased_moments

__all__ = [
    "Estimate",
    "regularizer",
    "regularizer_bound",
    "regularizer_taylor",
    "regularizer_tight_bound",
    "tight_probabilities",
]

METHODS = ("auto", "exact", "sample")
CELLS = 4_000_000  # numbers held at a time, and in a table of outcomes that nobody asked for


class Estimate(NamedTuple):
    """A value and its standard error, which is 0 if the value is exact."""

    value: float
    standard_error: float


def regularizer(
    w: npt.ArrayLike,
    X: Any,
    noise: Noise,
    *,
    method: str = "auto",
    n_samples: int = 1000,
    random_state: int | np.random.Generator | None = None,
) -> Estimate:
    """R(w) = E[loss under noise] - E[loss without], the regulariser that dropout amounts to (Proposition 1).

    E_D E_noise log [cosh(w.(x * noise) / 2) / cosh(w.x / 2)]

    The labels have no part in it. It is never negative (Jensen), and grows with the variance of the scores.

    Args:
        w: (d,), the weights.
        X: (n, d) array or SciPy sparse array, the examples.
        noise: a MultinomialNoise or a BernoulliNoise, positive wherever X is not 0.
        method: "exact" enumerates every outcome of the noise, "sample" draws ``n_samples`` of them for all rows
            together, "auto" enumerates if that takes no more than four million numbers.
        n_samples: how many; the standard error falls with its root.
        random_state: a seed or a NumPy generator.

    Returns:
        The value and its standard error.

    Examples:
        >>> from evodrop.theory import MultinomialNoise
        >>> X, noise = np.array([[3.0, 1.0], [0.0, 2.0]]), MultinomialNoise([0.6, 0.4], 3)
        >>> exact = regularizer([1.0, -1.0], X, noise)
        >>> round(exact.value, 4), exact.standard_error
        (0.1907, 0.0)
        >>> sampled = regularizer([1.0, -1.0], X, noise, method="sample", random_state=0)
        >>> abs(sampled.value - exact.value) < 4 * sampled.standard_error < 0.05
        True
    """
    w, X = _checked_model(w, X, noise)
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but it takes one of {', '.join(map(repr, METHODS))}")
    if method == "exact" or (method == "auto" and noise.n_outcomes * X.shape[1] <= CELLS):
        return Estimate(_enumerated(w, X, noise), 0.0)
    if not (isinstance(n_samples, numbers.Integral) and n_samples >= 2):
        raise ValueError(f"n_samples is {n_samples!r}, but a standard error takes an integer of at least 2")
    return _sampled(w, X, noise, n_samples, np.random.default_rng(random_state))


def regularizer_taylor(w: npt.ArrayLike, X: Any, noise: Noise) -> float:
    """The second-order expansion of :func:`regularizer` in the noise (Eq. 4).

    1/2 E_D[s(w.x) (1 - s(w.x)) w' Cov(x * noise) w]

    The paper prints s(w.x / 2). The second derivative of the loss is s (1 - s) at w.x itself, and so it stands here.

    Args:
        w: (d,), the weights.
        X: (n, d) array or SciPy sparse array, the examples.
        noise: a MultinomialNoise or a BernoulliNoise, positive wherever X is not 0.

    Examples:
        >>> from evodrop.theory import MultinomialNoise
        >>> X, noise = np.array([[3.0, 1.0], [0.0, 2.0]]), MultinomialNoise([0.6, 0.4], 300)
        >>> w = np.array([1.0, -1.0])
        >>> round(regularizer_taylor(w, X, noise), 6), round(regularizer(w, X, noise).value, 6)
        (0.001706, 0.001713)
    """
    w, X = _checked_model(w, X, noise)
    likely = expit(X @ w)
    return float((likely * (1.0 - likely) * score_variances(w, X, noise)).mean() / 2.0)


def regularizer_tight_bound(w: npt.ArrayLike, X: Any, noise: Noise) -> float:
    """E_D[w' Cov(x * noise) w] / 8, at least :func:`regularizer_taylor` (supplement, proof of Proposition 4).

    For multinomial noise 1/(8k) {sum_i w_i^2 E[x_i^2] / p_i - E[(w.x)^2]}. It takes 1/4 for s (1 - s), so it is tight
    where all scores w.x are 0. It bounds :func:`regularizer` itself as well, whose second derivative is at most 1/4.

    Args:
        w: (d,), the weights.
        X: (n, d) array or SciPy sparse array, the examples.
        noise: a MultinomialNoise or a BernoulliNoise, positive wherever X is not 0.

    Examples:
        >>> from evodrop.theory import MultinomialNoise
        >>> noise = MultinomialNoise([0.5, 0.5], 2)
        >>> X = np.array([[2.0, 2.0]])  # the score is 0
        >>> regularizer_tight_bound([1.0, -1.0], X, noise), regularizer_taylor([1.0, -1.0], X, noise)
        (1.0, 1.0)
    """
    w, X = _checked_model(w, X, noise)
    return float(score_variances(w, X, noise).mean() / 8.0)


def regularizer_bound(w: npt.ArrayLike, moments: npt.ArrayLike, noise: Noise) -> float:
    """||w||^2 (E||x * noise||^2 - E||x||^2) / 8, at least :func:`regularizer_tight_bound` (Proposition 4).

    For multinomial noise 1/(8k) ||w||^2 (sum_i E[x_i^2] / p_i - E||x||^2). The weights and the probabilities stand
    apart, so the probabilities of Proposition 3 minimise it for all weights at once. It is loose: it takes the trace of
    a covariance for its largest eigenvalue, so it is tight only where the noise of every x has one direction and w lies
    along it: a single unit that is noisy, or two that share all the draws.

    Args:
        w: (d,), the weights.
        moments: (d,), E[x_i^2].
        noise: a MultinomialNoise or a BernoulliNoise, positive wherever the moments are.

    Examples:
        >>> from evodrop.theory import MultinomialNoise
        >>> regularizer_bound([1.0, -1.0], [4.0, 4.0], MultinomialNoise([0.5, 0.5], 2))
        1.0
    """
    w, moments = checked_weights(w), checked_moments(moments)
    checked_length(w, "w", len(moments), "moments")
    with np.errstate(over="ignore", invalid="ignore"):
        bound = float((w @ w) * added_norm(moments, noise) / 8.0)
    if not math.isfinite(bound):
        raise ValueError("w and moments are so large that the bound overflows; divide one by its largest value")
    return bound


def tight_probabilities(w: npt.ArrayLike, moments: npt.ArrayLike) -> Floats:
    """p_i = |w_i| sqrt(E x_i^2) / sum_j |w_j| sqrt(E x_j^2), which minimise :func:`regularizer_tight_bound`.

    The supplement prints w_i for w_j in the denominator, where it would cancel. Since the weights are not known before
    they are learned, ``DropoutSGDClassifier(dropout="weight-aware")`` takes those of the moment.

    Args:
        w: (d,), the weights.
        moments: (d,), E[x_i^2].

    Examples:
        >>> tight_probabilities([1.0, -3.0], [9.0, 1.0])
        array([0.5, 0.5])
    """
    w, moments = checked_weights(w), checked_moments(moments)
    checked_length(w, "w", len(moments), "moments")
    size = np.abs(w) / (np.abs(w).max() or 1.0)
    masses = size * np.sqrt(moments / moments.max())
    if not masses.any():
        raise ValueError("w is 0 wherever moments are positive, so every bound is 0 and no probabilities are best")
    probs: Floats = masses / masses.sum()
    return probs


def _checked_model(w: npt.ArrayLike, X: Any, noise: Noise) -> tuple[Floats, Examples]:
    w, X = checked_weights(w), checked_examples(X)
    checked_length(w, "w", X.shape[1], "X")
    unbiased_moments(finite_moments(X) * (w != 0), "X", noise)  # the noise of a unit without weight is never felt
    return w, X


def _excesses(w: Floats, X: Examples, factors: Floats) -> Iterator[Floats]:
    """For each value of the noise what it adds to the loss, averaged over the rows of X; in portions.

    Less the linear term: its mean over the noise is 0, since the noise has mean 1, and without it every value is at
    least 0 (the loss is convex) and varies far less.
    """
    portion = max(1, CELLS // max(X.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        clean, largest = X @ w, abs(X) @ np.abs(w) * np.abs(factors).max()
    if not np.isfinite(largest).all():
        raise ValueError("w and X are so large that their scores overflow; divide one by its largest value")
    slope = 0.5 * np.tanh(clean / 2.0)
    base = np.logaddexp(clean / 2.0, -clean / 2.0) - slope * clean
    for start in range(0, len(factors), portion):
        noisy = X @ (w * factors[start : start + portion]).T
        values = np.logaddexp(noisy / 2.0, -noisy / 2.0) - slope[:, None] * noisy - base[:, None]
        yield np.maximum(values, 0.0).mean(axis=0)  # rounding may leave less than 0


def _enumerated(w: Floats, X: Examples, noise: Noise) -> float:
    values, pmf = noise.outcomes()
    return float(np.concatenate(list(_excesses(w, X, values))) @ pmf)


def _sampled(w: Floats, X: Examples, noise: Noise, n_samples: int, rng: np.random.Generator) -> Estimate:
    portion = max(1, CELLS // X.shape[1])
    sizes = [min(portion, n_samples - start) for start in range(0, n_samples, portion)]
    means = np.concatenate([part for size in sizes for part in _excesses(w, X, noise.sample(size, rng))])
    return Estimate(float(means.mean()), float(means.std(ddof=1) / np.sqrt(n_samples)))
